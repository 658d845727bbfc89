r"""Densities of single components of a state in the plane.

The other component is integrated out by a trapezoidal sum over an even grid, in coordinates without
ends where the state is constrained; for smooth densities that vanish at both ends it converges
faster than any power of the spacing.
"""

from typing import NamedTuple

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from ..sde.domains import AbstractDomain, Real
from ..transition.transition_density import AbstractTransitionDensity

# Draws that tell where the mass is; they reach three deviations, and two thirds of their range more
# on each side reach seven.
_DRAWS, _BEYOND = 1024, 2 / 3


class Marginal(NamedTuple):
    """The density of one component at points, with the weights of integrals over these."""

    x: Float[np.ndarray, " n"]
    prob: Float[np.ndarray, " n"]
    weights: Float[np.ndarray, " n"]

    def squared_l2(self, exact: Float[np.ndarray, " n"]) -> float:
        """Relative squared L2 distance to the density with the values `exact` at the points."""
        difference = self.weights @ (self.prob - exact) ** 2
        return float(difference / (self.weights @ exact**2))


def marginals(
    density: AbstractTransitionDensity,
    t: float,
    x0: Float[ArrayLike, " 2"],
    *,
    grid: int = 193,
) -> tuple[Marginal, Marginal]:
    """Densities of both components of a state in the plane.

    **Arguments:**

    - `density`: of dimension two, without open parameters.
    - `t`, `x0`: a time and a start.
    - `grid`: points along each axis.
    """
    if density.dim != 2:
        raise ValueError(f"Marginals are those of two components; the state has {density.dim}.")
    chart = getattr(density, "chart", None)
    maps = (Real(), Real()) if chart is None else chart.maps
    draws = np.asarray(density.sample(jr.key(0), t, x0, (_DRAWS,)))
    first, second = (_axis(*column, grid) for column in zip(maps, draws.T, strict=True))
    points = jnp.stack(jnp.meshgrid(first.x, second.x, indexing="ij"), axis=-1)
    joint = np.asarray(density.prob(points, t, x0))
    return (
        Marginal(first.x, joint @ second.weights, first.weights),
        Marginal(second.x, first.weights @ joint, second.weights),
    )


class _Axis(NamedTuple):
    x: np.ndarray
    weights: np.ndarray


def _axis(part: AbstractDomain, draws: np.ndarray, grid: int) -> _Axis:
    """States whose coordinates are even over the mass, and how much of the line each stands for."""
    y = np.asarray(part.to_real(jnp.asarray(draws)))
    low, high = y.min(), y.max()
    beyond = _BEYOND * (high - low)
    coordinates, step = np.linspace(low - beyond, high + beyond, grid, retstep=True)
    x: Array = part.from_real(jnp.asarray(coordinates))
    return _Axis(np.asarray(x), step * np.exp(-np.asarray(part.log_slope(x))))
