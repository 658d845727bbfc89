r"""Consistency of a density with the Chapman--Kolmogorov equation.

For a homogeneous process $\rho_t(x | x_0) = \int\rho_{t/2}(x | y)\,\rho_{t/2}(y | x_0)\,dy$. The
right-hand side is estimated by a mean over draws $y$, at points $x$ drawn from the density. If the
density depends on the start time, the second half starts $t/2$ later.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..density.composed import ComposedDensity
from ..density.learned import LearnedDensity
from ..sde.argument_checks import checked_count, checked_key, checked_one_point
from ..sde.parameters import Params
from ..transition.programs import log_probs
from ..transition.transition_density import AbstractTransitionDensity
from ..uses.underlying_sde import began_at, member_of, require_homogeneous, scalars

# Number of groups of draws; their spread estimates the sampling error of the mean.
_GROUPS = 16


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
    """Compare two transitions over `t / 2` with one over `t`.

    **Arguments:**

    - `density`: a learned density.
    - `key`: a random key.
    - `t`: a time within `density.reach`.
    - `x0`: one start.
    - `points`: number of points at which the densities are compared.
    - `draws`: number of intermediate points, at least 32.
    - `params`, `start_time`: as in the density's queries.
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
        ratios = _ratios(plain, t, x, density._joined(y, **half), start)
        errors = np.asarray(ratios).reshape(points, _GROUPS, -1).mean(axis=2) - 1
        coverage = float(jnp.min(density.coverage(y, **half)))
    squared = _mean_product(errors)
    without = [_mean_product(np.delete(errors, group, axis=1)) for group in range(_GROUPS)]
    jackknife = np.sqrt((_GROUPS - 1) * np.var(without))
    return Consistency(squared, float(jackknife), coverage)


def _ratios(
    density: AbstractTransitionDensity, t: float, x: Array, y: Array, x0: Array
) -> Float[Array, "points draws"]:
    """Return the densities at `x` from each intermediate point, relative to that from `x0`."""
    dtype = x.dtype
    whole = log_probs(density, jnp.asarray(t, dtype), x, x0)
    half = log_probs(density, jnp.asarray(t / 2, dtype), x[:, None], y[None])
    return jnp.exp(half - whole[:, None])


def _mean_product(errors: Float[np.ndarray, "points groups"]) -> float:
    """Return the mean product of errors of two different groups, which squares no noise."""
    groups = errors.shape[1]
    products = errors.sum(axis=1) ** 2 - (errors**2).sum(axis=1)
    return float(np.mean(products) / (groups * (groups - 1)))
