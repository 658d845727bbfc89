r"""Checks of a density that need no exact solution.

**Chapman--Kolmogorov.** For a homogeneous process
$\rho_t(x | x_0) = \int\rho_{t/2}(x | y)\,\rho_{t/2}(y | x_0)\,dy$. The right-hand side is estimated
by a mean over draws $y$, at points $x$ drawn from the density. If the density depends on the start
time, the second half starts $t/2$ later.

**Simulated paths.** Draws from the density are compared with end points of paths of Heun's method:
means and covariances in units of their standard errors, and the energy distance with a permutation
test.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ..density.composed import ComposedDensity
from ..density.learned import LearnedDensity
from ..sde.argument_checks import checked_count, checked_key, checked_one_point
from ..sde.chart import Chart
from ..sde.heun import heun_paths
from ..sde.parameters import Params
from ..transition.programs import log_probs
from ..uses.underlying_sde import began_at, member_of, require_homogeneous, scalars
from .errors import log_probs_from_each

# Number of groups of draws; their spread estimates the sampling error of the mean.
_GROUPS = 16
# Number of permutations in the test of the energy distance.
_PERMUTATIONS = 200


class Consistency(NamedTuple):
    """Difference between one transition over `t` and two over `t / 2`."""

    squared: float  # unbiased mean square of the relative difference; may be negative
    stderr: float  # of `squared`
    coverage: float  # smallest coverage of the intermediate points

    @property
    def discrepancy(self) -> float:
        """Root mean square of the relative difference between the two densities."""
        return float(np.sqrt(max(self.squared, 0.0)))


def chapman_kolmogorov(
    density: LearnedDensity,
    key: PRNGKeyArray,
    t: float,
    x0: Float[np.ndarray, " d"],
    *,
    points: int = 256,
    draws: int = 4096,
    params: Params | None = None,
    start_time: float | None = None,
) -> Consistency:
    """Compare two transitions over `t / 2` with one over a time `t` within `density.reach`.

    Densities are compared at `points` draws; `draws` is the number of intermediate points.
    """
    key = checked_key(key)
    checked_count("points", points)
    checked_count("draws", draws, least=2 * _GROUPS)
    scalar_params, began = scalars(density, params), began_at(density, start_time, "start_time")
    checked_one_point("x0", x0, density.dim)
    plain = density._restricted(jnp.asarray(t))
    if isinstance(plain, ComposedDensity):
        raise ValueError(
            f"Beyond t={density.reach:g} this density is itself composed by the "
            "Chapman--Kolmogorov equation, so the test says little. Use `t <= density.reach`."
        )
    whole: dict[str, Any] = {"params": scalar_params, "start_time": start_time}
    half = {**whole, "start_time": began + t / 2}
    if density.start_time is not None:
        sde, half = member_of(density.sde, scalar_params), whole
        require_homogeneous(sde, began, density.horizon, jnp.asarray(x0)[None])
    point_key, draw_key = jr.split(key)
    with jax.enable_x64(True):
        x = density.sample(point_key, t, x0, points, **whole)
        y = density.sample(draw_key, t / 2, x0, draws - draws % _GROUPS, **whole)
        start = density._joined(jnp.asarray(x0), **whole)
        plain, time = density._restricted(jnp.asarray(t)), jnp.asarray(t, x.dtype)
        # Densities at `x` from each intermediate point, relative to that from `x0`.
        at_each = jnp.broadcast_to(x[:, None], (points, *y.shape))
        over_half = log_probs_from_each(plain, time / 2, at_each, density._joined(y, **half))
        ratios = jnp.exp(over_half - log_probs(plain, time, x, start)[:, None])
        errors = np.asarray(ratios).reshape(points, _GROUPS, -1).mean(axis=2) - 1
        coverage = float(jnp.min(density.coverage(y, **half)))
    squared = _mean_product(errors)
    without = [_mean_product(np.delete(errors, group, axis=1)) for group in range(_GROUPS)]
    jackknife = np.sqrt((_GROUPS - 1) * np.var(without))
    return Consistency(squared, float(jackknife), coverage)


def _mean_product(errors: Float[np.ndarray, "points groups"]) -> float:
    """Return the mean product of errors of two different groups, which squares no noise."""
    groups = errors.shape[1]
    products = errors.sum(axis=1) ** 2 - (errors**2).sum(axis=1)
    return float(np.mean(products) / (groups * (groups - 1)))


class Agreement(NamedTuple):
    """Differences between draws of a density and simulated end points."""

    mean_z: float  # largest difference between means of a component, in standard errors
    covariance_z: float  # the same for entries of the covariance
    energy: float  # energy distance between the two samples
    energy_noise: float  # its mean under random permutations of both samples
    energy_stderr: float  # its standard deviation under these permutations
    paths: int
    steps: int

    @property
    def energy_z(self) -> float:
        """Excess of the energy distance over `energy_noise`, in units of `energy_stderr`."""
        return (self.energy - self.energy_noise) / self.energy_stderr


def agreement_with_paths(
    density: LearnedDensity,
    key: PRNGKeyArray,
    t: float,
    x0: Float[np.ndarray, " d"],
    *,
    paths: int = 2000,
    steps: int = 1000,
    params: Params | None = None,
    start_time: float | None = None,
) -> Agreement:
    """Compare draws of a density with end points of as many simulated `paths`, of `steps` each."""
    path_key, draw_key = jr.split(checked_key(key))
    checked_count("paths", paths, least=2)
    checked_count("steps", steps)
    checked_one_point("x0", x0, density.dim)
    began = began_at(density, start_time, "start_time")
    with jax.enable_x64(True):
        member = member_of(density.sde, scalars(density, params))
        # In unconstrained coordinates, so that no step leaves the domain.
        chart = Chart(member, density.chart.maps)
        y0 = chart.start(jnp.asarray(x0, float))
        starts, until = jnp.broadcast_to(y0, (paths, len(y0))), jnp.asarray([t], float)
        [ends] = heun_paths(chart.equation(), began, path_key, starts, until, steps)
        ends = jax.vmap(chart.from_real)(ends)
        draws = density.sample(draw_key, t, x0, paths, params, start_time=start_time)
        a, b = np.asarray(ends), np.asarray(draws)
    if not np.all(np.isfinite(a)):
        raise ValueError(
            f"Simulated paths from {np.asarray(x0).tolist()} are not finite at t={t:g}: "
            f"{steps} steps are too few for this drift. Increase `steps`."
        )
    energy, noise, spread = _energy(a, b)
    rows, columns = np.triu_indices(density.dim)
    centred = [x - x.mean(axis=0) for x in (a, b)]
    products = [x[:, rows] * x[:, columns] for x in centred]
    z = _largest_z(a, b), _largest_z(*products)
    return Agreement(*z, energy, noise, spread, paths=paths, steps=steps)


def _largest_z(a: np.ndarray, b: np.ndarray) -> float:
    stderr = np.sqrt(a.var(axis=0) / len(a) + b.var(axis=0) / len(b))
    return float(np.max(np.abs(a.mean(axis=0) - b.mean(axis=0)) / stderr))


def _energy(a: np.ndarray, b: np.ndarray) -> tuple[float, float, float]:
    """Return the energy distance, and its mean and standard deviation under permutations."""
    both = np.concatenate([a, b]) / np.std(b, axis=0)
    squares = (both**2).sum(axis=1)
    gaps = np.sqrt(np.maximum(squares[:, None] + squares[None] - 2 * both @ both.T, 0.0))
    signs = np.repeat([1.0, -1.0], [len(a), len(b)])
    rng = np.random.default_rng(0)
    permuted = np.stack([rng.permutation(signs) for _ in range(_PERMUTATIONS)])
    # For samples of equal size the distance is a quadratic form in the signs.
    found = -signs @ gaps @ signs / len(a) ** 2
    noise = -np.einsum("ki,ki->k", permuted @ gaps, permuted) / len(a) ** 2
    return float(found), float(noise.mean()), float(noise.std())
