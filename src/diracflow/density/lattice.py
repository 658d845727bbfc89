r"""Legs over the points of a lattice.

In one and two dimensions the integrals over where legs begin are sums over a lattice: densities
are smooth, and for smooth functions such sums converge faster than any power of the spacing. A
whole leg is then a matrix of transition probabilities between points, and any number of them a
power of it, so a density after many legs costs no more than after two. Rows are normalised: mass
stays one.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..flow.ansatz import AbstractAnsatz
from .subintervals import TOGETHER, Beginnings, Legs

# Rows of probabilities sum to one, up to rounding.
_UNIT = 1e-9


class Lattice(eqx.Module):
    """Points, and the probabilities of moves between them over 1, 2, 4, ... whole legs."""

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


def weighed(lattice: Lattice, legs: Legs, start: Float[Array, " d"]) -> Beginnings:
    """The points of the lattice with the probabilities that the last leg begins there."""
    points = jnp.asarray(lattice.points, start.dtype)
    weights = jax.nn.softmax(log_row(legs.ansatz, legs.length, points, start))
    inner = legs.number - 2
    for power, moves in enumerate(lattice.moves):
        moved = weights @ jnp.asarray(moves, start.dtype)
        weights = jnp.where((inner >> power) & 1 == 1, moved, weights)
    return Beginnings(points, weights)


def log_row(
    ansatz: AbstractAnsatz,
    length: Float[Array, ""],
    points: Float[Array, "n d"],
    start: Float[Array, " d"],
) -> Float[Array, " n"]:
    """Log-densities at points, after a leg from one start."""
    value = jax.checkpoint(lambda y: ansatz.log_prob(y, length, start))
    return jax.lax.map(value, points, batch_size=TOGETHER)
