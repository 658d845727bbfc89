r"""Marginal densities of the components of a two-dimensional state.

The other component is integrated out by a trapezoidal sum over an even grid, in unconstrained
coordinates. For smooth densities that vanish at both ends it converges faster than any power of the
spacing.
"""

from typing import NamedTuple

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from ..sde.domains import AbstractDomain, Real
from ..transition.transition_density import AbstractTransitionDensity

# Number of draws that locate the mass, and the extension of their range on each side. The draws
# reach three standard deviations, the extended range seven.
_DRAWS, _BEYOND = 1024, 2 / 3


class Marginal(NamedTuple):
    """The density of one component at points, with quadrature weights."""

    x: Float[np.ndarray, " n"]
    prob: Float[np.ndarray, " n"]
    weights: Float[np.ndarray, " n"]

    def squared_l2(self, exact: Float[np.ndarray, " n"]) -> float:
        """Return the relative squared $L^2$ distance to a density with the values `exact`."""
        difference = self.weights @ (self.prob - exact) ** 2
        return float(difference / (self.weights @ exact**2))


def marginals(
    density: AbstractTransitionDensity,
    t: float,
    x0: Float[ArrayLike, " 2"],
    *,
    grid: int = 193,
) -> tuple[Marginal, Marginal]:
    """Return the marginal densities of both components of a two-dimensional state.

    **Arguments:**

    - `density`: a transition density in two dimensions, without parameters.
    - `t`, `x0`: one time and one start.
    - `grid`: number of points along each axis.
    """
    if density.dim != 2:
        raise ValueError(f"`density` must have two components; it has {density.dim}.")
    chart = getattr(density, "chart", None)
    maps = (Real(), Real()) if chart is None else chart.maps
    draws = np.asarray(density.sample(jr.key(0), t, x0, (_DRAWS,)))
    (x1, w1), (x2, w2) = (_axis(*column, grid) for column in zip(maps, draws.T, strict=True))
    points = jnp.stack(jnp.meshgrid(x1, x2, indexing="ij"), axis=-1)
    joint = np.asarray(density.prob(points, t, x0))
    return Marginal(x1, joint @ w2, w1), Marginal(x2, w1 @ joint, w2)


def _axis(part: AbstractDomain, draws: np.ndarray, grid: int) -> tuple[np.ndarray, np.ndarray]:
    """Return states that are evenly spaced in unconstrained coordinates, with their weights."""
    y = np.asarray(part.to_real(jnp.asarray(draws)))
    low, high = y.min(), y.max()
    beyond = _BEYOND * (high - low)
    coordinates, step = np.linspace(low - beyond, high + beyond, grid, retstep=True)
    x: Array = part.from_real(jnp.asarray(coordinates))
    return np.asarray(x), step * np.exp(-np.asarray(part.log_slope(x)))
