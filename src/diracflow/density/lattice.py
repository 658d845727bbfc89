r"""Composition over the points of a lattice.

In one and two dimensions the integrals over intermediate states are sums over a lattice. Densities
are smooth, and for smooth functions such sums converge faster than any power of the spacing. A
subinterval is then a matrix of transition probabilities between points, and several are a power of
it, so that many subintervals cost no more than two. Rows are normalised, which keeps the mass at
one.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..transition.transition_density import AbstractTransitionDensity
from .subintervals import TOGETHER, Beginnings, Subintervals

# Rows of probabilities sum to one, up to rounding.
_UNIT = 1e-9


class Lattice(eqx.Module):
    """Points, and the transition probabilities between them over 1, 2, 4, ... subintervals."""

    points: Float[Array | np.ndarray, "n d"]
    moves: Float[Array | np.ndarray, "powers n n"]

    def __check_init__(self) -> None:
        count = len(self.points)
        if self.points.ndim != 2 or self.moves.shape[1:] != (count, count) or count == 0:
            raise ValueError(
                "A lattice has points of shape (n, d) and moves of shape (powers, n, n); got "
                f"{self.points.shape} and {self.moves.shape}."
            )
        moves = np.asarray(self.moves)
        if np.any(moves < 0) or not np.allclose(moves.sum(axis=-1), 1.0, rtol=0, atol=_UNIT):
            raise ValueError("Rows of the moves of a lattice must be probabilities.")


def weighted(
    base: AbstractTransitionDensity,
    times: Subintervals,
    start: Float[Array, " d"],
    lattice: Lattice,
) -> Beginnings:
    """Return the points with the probabilities that the last subinterval begins there."""
    points = jnp.asarray(lattice.points, start.dtype)
    weights = jax.nn.softmax(log_row(base, times.outer, points, start))
    inner = times.number - 2
    for power, moves in enumerate(lattice.moves):
        moved = weights @ jnp.asarray(moves, start.dtype)
        weights = jnp.where((inner >> power) & 1 == 1, moved, weights)
    return Beginnings(points, weights)


def log_row(
    base: AbstractTransitionDensity,
    state: object,
    points: Float[Array, "n d"],
    start: Float[Array, " d"],
) -> Float[Array, " n"]:
    """Return the log-densities at all points from one start."""
    value = jax.checkpoint(lambda y: base._log_prob(state, y, start))
    return jax.lax.map(value, points, batch_size=TOGETHER)
