r"""Distances between a transition density and the exact one.

For each time and start, three distances between the density $P$ and the exact $\rho$:

- relative squared $L^2$: $\int(P-\rho)^2 / \int\rho^2$,
- Kullback--Leibler: $\int\rho\log(\rho/P)$,
- total variation: $\tfrac12\int|P-\rho|$.

In one and two dimensions the integrals are sums over a grid that covers both densities. For smooth
densities they converge faster than any power of the spacing. The grid is even in unconstrained
coordinates. In higher dimensions, or if the grid does not resolve both densities,
the integrals are means over samples, with standard errors. Half of the samples come from $\rho$ and
half from $P$: samples of $\rho$ alone would miss mass that $P$ has elsewhere.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from ..density.learned import LearnedDensity
from ..sde.argument_checks import checked_count, checked_key, real_numbers
from ..sde.chart import start_coordinates
from ..sde.parameters import Params
from ..transition.transition_density import (
    AbstractTransitionDensity,
    checked_query,
    require_density,
)

# Points at which densities are evaluated at once.
_TOGETHER = 2**14
# A grid that misses more than this fraction of the mass is not used.
_UNRESOLVED = 1e-3


class Errors(NamedTuple):
    """Distances for each time and start, and their standard errors (zero for quadrature)."""

    squared_l2: Float[np.ndarray, "*batch"]
    kl: Float[np.ndarray, "*batch"]
    total_variation: Float[np.ndarray, "*batch"]
    squared_l2_stderr: Float[np.ndarray, "*batch"]
    kl_stderr: Float[np.ndarray, "*batch"]
    total_variation_stderr: Float[np.ndarray, "*batch"]


def errors(
    density: AbstractTransitionDensity,
    exact: AbstractTransitionDensity,
    t: Float[ArrayLike, " times"],
    x0: Float[ArrayLike, "starts d"],
    *,
    key: PRNGKeyArray | None = None,
    samples: int = 4096,
    grid: int = 97,
    params: Params | None = None,
    start_time: Float[ArrayLike, " starts"] | None = None,
) -> Errors:
    """Return the distances between two transition densities, of shape `(times, starts)`.

    **Arguments:**

    - `density`, `exact`: the density to evaluate and the exact one.
    - `t`, `x0`: times and starts; all pairs are evaluated.
    - `key`: a random key, for the samples or for the extent of the grid.
    - `samples`: number of draws for each pair, above two dimensions.
    - `grid`: number of points along each axis, in one and two dimensions.
    - `params`, `start_time`: parameters of the SDE and start times, if both densities depend on
        them; scalars or one value for each start.
    """
    require_density(density)
    require_density(exact, "exact")
    if density.dim != exact.dim:
        raise ValueError(
            f"`density` has {density.dim} components and `exact` {exact.dim}; they must agree."
        )
    checked_count("samples", samples, least=2)
    checked_count("grid", grid, least=3)
    times, starts = np.atleast_1d(real_numbers("t", t)), np.atleast_2d(real_numbers("x0", x0))
    if times.ndim != 1 or starts.ndim != 2 or not times.size or not starts.size:
        raise ValueError(
            "`t` must be a list of times and `x0` one of starts, at least one of each; got shapes "
            f"{np.shape(t)} and {np.shape(x0)}."
        )
    pair = _Pair(density, exact, starts, {"params": params, "start_time": start_time})
    key = jr.key(0) if key is None else checked_key(key)
    rows = []
    for index, time in enumerate(times):
        row_key = jr.fold_in(key, index)
        row = _by_quadrature(pair, time, row_key, grid) if exact.dim <= 2 else None
        rows.append(_by_sampling(pair, time, row_key, samples) if row is None else row)
    return Errors(*(np.stack([row[i] for row in rows]) for i in range(len(Errors._fields))))


class _Pair(NamedTuple):
    """A density and the exact one, with the starts and conditioning of all queries."""

    density: AbstractTransitionDensity
    exact: AbstractTransitionDensity
    x0: np.ndarray
    conditioning: dict[str, Any]

    def sample(
        self, law: AbstractTransitionDensity, key: PRNGKeyArray, t: float, count: int
    ) -> np.ndarray:
        """Return draws of shape `(count, starts, d)`."""
        return np.asarray(law.sample(key, t, self.x0, (count,), **self.conditioning))

    def log_prob(self, law: AbstractTransitionDensity, t: float, x: np.ndarray) -> np.ndarray:
        """Return log-densities at `x`, of shape `(points, starts, d)`."""
        time, points, starts = checked_query(law, t, **self.conditioning, x=x, x0=self.x0)
        values = log_probs_from_each(law._restricted(time), time, points, starts)
        return np.asarray(values, dtype=np.float64)


def _by_quadrature(pair: _Pair, t: float, key: PRNGKeyArray, grid: int) -> Errors | None:
    """Return the distances by quadrature, or `None` if a density does not have unit mass."""
    x, volume = _covering_grid(pair, t, key, grid)
    log_p, log_rho = (pair.log_prob(law, t, x) for law in (pair.density, pair.exact))
    p, rho = np.exp(log_p), np.exp(log_rho)
    masses = np.stack([np.sum(volume * p, axis=0), np.sum(volume * rho, axis=0)])
    if np.any(np.abs(masses - 1) > _UNRESOLVED):
        return None
    squared_l2 = np.sum(volume * (p - rho) ** 2, axis=0) / np.sum(volume * rho**2, axis=0)
    # Both densities vanish outside the domain.
    ratio = np.where(rho > 0, log_rho - log_p, 0.0)
    kl = np.sum(volume * (rho * ratio + p - rho), axis=0)
    total_variation = 0.5 * np.sum(volume * np.abs(p - rho), axis=0)
    none = np.zeros_like(squared_l2)
    return Errors(squared_l2, kl, total_variation, none, none, none)


def _covering_grid(
    pair: _Pair, t: float, key: PRNGKeyArray, grid: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return points of shape `(grid**d, starts, d)` that cover both densities, and cell volumes."""
    draws = [
        np.asarray(pair.sample(law, jr.fold_in(key, i), t, 1024), dtype=np.float64)
        for i, law in enumerate((pair.density, pair.exact))
    ]
    chart, dim = getattr(pair.density, "chart", None), pair.exact.dim
    if chart is not None:
        draws = [np.asarray(start_coordinates(chart, x)) for x in draws]
    cloud = np.concatenate(draws)
    low, high = wide_range(cloud)
    axes = np.meshgrid(*[np.linspace(0, 1, grid)] * dim, indexing="ij")
    unit = np.stack(axes, axis=-1).reshape(-1, 1, dim)
    y, cell = low + (high - low) * unit, np.prod((high - low) / (grid - 1), axis=-1)
    if chart is None or chart.plain:
        return y, cell
    x = jnp.vectorize(chart.from_real, signature="(d)->(d)")(y)
    log_slopes = jnp.vectorize(chart.log_slope, signature="(d)->()")(x)
    return np.asarray(x), cell * np.exp(-np.asarray(log_slopes))


def wide_range(draws: Float[np.ndarray, "n *d"]) -> tuple[np.ndarray, np.ndarray]:
    """Return ends of a range that contains all but a negligible part of a law.

    A thousand draws reach three standard deviations; two thirds of their range more on each side
    reach seven, where a Gaussian has fallen to 1e-11 of its height.
    """
    low, high = draws.min(axis=0), draws.max(axis=0)
    return low - 2 / 3 * (high - low), high + 2 / 3 * (high - low)


def _by_sampling(pair: _Pair, t: float, key: PRNGKeyArray, samples: int) -> Errors:
    laws = (pair.exact, pair.density)
    halves = [pair.sample(law, jr.fold_in(key, i), t, samples // 2) for i, law in enumerate(laws)]
    x = np.concatenate(halves)
    log_rho, log_p = (pair.log_prob(law, t, x) for law in laws)
    # With m = (rho + P) / 2 the density of the samples, an integral of g is the mean of g / m.
    top = np.maximum(log_rho, log_p)
    rho, p = np.exp(log_rho - top), np.exp(log_p - top)
    m = (rho + p) / 2
    size = np.exp(top - top.max(axis=0))
    difference, square = size * (p - rho) ** 2 / m, size * rho**2 / m
    squared_l2 = difference.mean(axis=0) / square.mean(axis=0)
    spread = np.std(difference - squared_l2 * square, axis=0) / square.mean(axis=0)
    # Adding P - rho, of integral zero, makes every term of the divergence nonnegative. Terms with
    # rho = 0 vanish.
    kl = (rho * np.where(rho > 0, log_rho - log_p, 0.0) + p - rho) / m
    distance = 0.5 * np.abs(p - rho) / m
    root = np.sqrt(len(x))
    return Errors(
        squared_l2,
        np.mean(kl, axis=0),
        np.mean(distance, axis=0),
        spread / root,
        np.std(kl, axis=0) / root,
        np.std(distance, axis=0) / root,
    )


@eqx.filter_jit
def log_probs_from_each(
    density: AbstractTransitionDensity,
    t: Float[Array, ""],
    x: Float[Array, "points starts d"],
    x0: Float[Array, "starts d+k"],
) -> Float[Array, "points starts"]:
    """Return log-densities from each start; terms of the start alone are computed only once."""
    state = density._at_time(t)
    row = lambda pair: jax.vmap(lambda x: density._log_prob(state, x, pair[1]))(pair[0])
    together = max(1, _TOGETHER // len(x))
    return jax.lax.map(row, (jnp.moveaxis(x, 1, 0), x0), batch_size=together).T


def bootstrap_mean(
    values: Float[ArrayLike, "... starts"], *, level: float = 0.95, resamples: int = 2000
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the mean over the last axis, and the ends of its percentile bootstrap interval."""
    table = np.asarray(values, dtype=np.float64)
    starts = table.shape[-1]
    rng = np.random.default_rng(0)
    picks = rng.multinomial(starts, np.full(starts, 1 / starts), size=resamples) / starts
    means = table @ picks.T
    tails = 50 * (1 - level), 50 * (1 + level)
    low, high = np.percentile(means, tails, axis=-1)
    return table.mean(axis=-1), low, high


class Study(NamedTuple):
    """Errors of a learned density and of its source, of shape `(times, starts)`."""

    times: Float[np.ndarray, " times"]
    starts: Float[np.ndarray, "starts d"]
    learned: Errors
    source: Errors

    def summary(self) -> list[dict[str, float]]:
        """Return one row for each time: means over the starts."""
        rows = []
        for i, t in enumerate(self.times):
            squares = self.learned.squared_l2[i]
            _, low, high = map(float, bootstrap_mean(squares))
            row = {"t": float(t), "squared_l2_low": low, "squared_l2_high": high}
            row["squared_l2_max"] = float(squares.max())
            for name in ("squared_l2", "kl", "total_variation"):
                stderrs = getattr(self.learned, f"{name}_stderr")[i]
                row[name] = float(getattr(self.learned, name)[i].mean())
                # Of a mean of independent estimates.
                row[f"{name}_stderr"] = float(np.sqrt(np.sum(stderrs**2)) / len(stderrs))
                row[f"source_{name}"] = float(getattr(self.source, name)[i].mean())
            rows.append(row)
        return rows


def study(
    density: LearnedDensity,
    exact: AbstractTransitionDensity,
    *,
    key: PRNGKeyArray,
    starts: int = 64,
    times: Float[np.ndarray, " times"] | None = None,
    samples: int = 512,
) -> Study:
    """Compare a learned density with the exact one over its horizon and its start law.

    **Arguments:**

    - `density`, `exact`: the learned and the exact density.
    - `key`: a random key for starts and samples. Starts, with parameters and start times if the
        density depends on them, are drawn from the laws that the density was trained on.
    - `starts`: number of starts.
    - `times`: times; by default sixteen, logarithmically spaced over three decades.
    - `samples`: number of draws for each time and start, above two dimensions.
    """
    checked_count("starts", starts)
    key = checked_key(key)
    if times is None:
        times = density.horizon * np.geomspace(1e-3, 1.0, 16)
    start_key, sample_key = jr.split(key)
    # float32 cannot resolve errors below 1e-6.
    with jax.enable_x64(True):
        g = density.scope.law.sample(start_key, (starts,))
        x0, conditioning = np.asarray(g[:, : density.dim]), density._keywords(g[:, density.dim :])
        learned, source = (
            errors(candidate, exact, times, x0, key=sample_key, samples=samples, **conditioning)
            for candidate in (density, density.source_only())
        )
    return Study(np.asarray(times), x0, learned, source)


def with_errors(
    density: LearnedDensity, exact: AbstractTransitionDensity | None, seed: int, starts: int
) -> LearnedDensity:
    """Return the density with its errors in `provenance`, where the exact density is known."""
    if exact is None or density.horizon <= 0 or starts == 0:
        return density
    found = study(density, exact, key=jr.key(seed + 1), starts=starts)
    return density.with_provenance(errors=tuple(found.summary()))
