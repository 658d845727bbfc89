r"""How far a transition density is from the exact one.

For each time and start, three distances between the density $P$ and the exact $\rho$:

- relative squared $L^2$: $\int(P-\rho)^2 / \int\rho^2$,
- Kullback--Leibler: $\int\rho\log(\rho/P)$,
- total variation: $\tfrac12\int|P-\rho|$.

In one and two dimensions the integrals are sums over a grid that holds both densities, which for
smooth densities converges faster than any power of the spacing. Above, they are means over samples
of $\rho$, with their standard errors.
"""

from typing import NamedTuple

import jax.random as jr
import numpy as np
from jaxtyping import ArrayLike, Float, PRNGKeyArray

from ..problem.transition import AbstractTransitionDensity


class Errors(NamedTuple):
    """Distances to the exact density, one for each time and start; standard errors, or zero."""

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
    grid: int = 129,
) -> Errors:
    """Distances between two transition densities, of shape `(times, starts)`.

    **Arguments:**

    - `density`, `exact`: the density to judge and the truth.
    - `t`, `x0`: times and starts; every pair is judged.
    - `key`: for the samples used above two dimensions, and to find where the mass lies below.
    - `samples`: draws of the exact density for each pair, above two dimensions.
    - `grid`: points along each axis, in one and two dimensions.
    """
    times, starts = np.atleast_1d(np.asarray(t)), np.atleast_2d(np.asarray(x0))
    key = jr.key(0) if key is None else key
    rows = []
    for index, time in enumerate(times):
        row_key = jr.fold_in(key, index)
        if exact.dim <= 2:
            rows.append(_by_quadrature(density, exact, time, starts, row_key, grid))
        else:
            rows.append(_by_sampling(density, exact, time, starts, row_key, samples))
    return Errors(*(np.stack([row[i] for row in rows]) for i in range(len(Errors._fields))))


def _by_quadrature(
    density: AbstractTransitionDensity,
    exact: AbstractTransitionDensity,
    t: float,
    x0: np.ndarray,
    key: PRNGKeyArray,
    grid: int,
) -> Errors:
    x, volume = _covering_grid(density, exact, t, x0, key, grid)
    log_p = np.asarray(density.log_prob(x, t, x0), dtype=np.float64)
    log_rho = np.asarray(exact.log_prob(x, t, x0), dtype=np.float64)
    p, rho = np.exp(log_p), np.exp(log_rho)
    squared_l2 = np.sum((p - rho) ** 2, axis=0) / np.sum(rho**2, axis=0)
    kl = volume * np.sum(rho * (log_rho - log_p) + p - rho, axis=0)
    total_variation = 0.5 * volume * np.sum(np.abs(p - rho), axis=0)
    none = np.zeros_like(squared_l2)
    return Errors(squared_l2, kl, total_variation, none, none, none)


def _covering_grid(
    density: AbstractTransitionDensity,
    exact: AbstractTransitionDensity,
    t: float,
    x0: np.ndarray,
    key: PRNGKeyArray,
    grid: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Points of shape `(grid**d, starts, d)` over the mass of both densities, and cell volumes."""
    draws = [d.sample(jr.fold_in(key, i), t, x0, (1024,)) for i, d in enumerate((density, exact))]
    cloud = np.concatenate([np.asarray(d, dtype=np.float64) for d in draws])
    low, high = cloud.min(axis=0), cloud.max(axis=0)
    # A thousand draws reach three standard deviations; two thirds of their range more on each
    # side reach seven, where a Gaussian has fallen to 1e-11 of its height.
    low, high = low - 2 / 3 * (high - low), high + 2 / 3 * (high - low)
    axes = np.meshgrid(*[np.linspace(0, 1, grid)] * exact.dim, indexing="ij")
    unit = np.stack(axes, axis=-1).reshape(-1, 1, exact.dim)
    return low + (high - low) * unit, np.prod((high - low) / (grid - 1), axis=-1)


def _by_sampling(
    density: AbstractTransitionDensity,
    exact: AbstractTransitionDensity,
    t: float,
    x0: np.ndarray,
    key: PRNGKeyArray,
    samples: int,
) -> Errors:
    x = exact.sample(key, t, x0, (samples,))
    log_rho = np.asarray(exact.log_prob(x, t, x0), dtype=np.float64)
    log_ratio = np.asarray(density.log_prob(x, t, x0), dtype=np.float64) - log_rho
    excess = np.expm1(log_ratio)
    # Weights by the density itself: E[(P/rho - 1)^2 rho] / E[rho], scaled against underflow.
    rho = np.exp(log_rho - log_rho.max(axis=0))
    squared_l2 = np.mean(excess**2 * rho, axis=0) / np.mean(rho, axis=0)
    spread = np.std(rho * (excess**2 - squared_l2), axis=0) / np.mean(rho, axis=0)
    # As E[P/rho] = 1, adding the excess changes no mean and makes every KL term nonnegative.
    kl = excess - log_ratio
    distance = 0.5 * np.abs(excess)
    root = np.sqrt(samples)
    return Errors(
        squared_l2,
        np.mean(kl, axis=0),
        np.mean(distance, axis=0),
        spread / root,
        np.std(kl, axis=0) / root,
        np.std(distance, axis=0) / root,
    )


def bootstrap_mean(
    values: Float[ArrayLike, "... starts"], *, level: float = 0.95, resamples: int = 2000
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean over the last axis with the ends of its percentile bootstrap interval."""
    table = np.asarray(values, dtype=np.float64)
    starts = table.shape[-1]
    rng = np.random.default_rng(0)
    picks = rng.multinomial(starts, np.full(starts, 1 / starts), size=resamples) / starts
    means = table @ picks.T
    tails = 50 * (1 - level), 50 * (1 + level)
    low, high = np.percentile(means, tails, axis=-1)
    return table.mean(axis=-1), low, high
