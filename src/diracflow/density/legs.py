r"""Densities beyond the time that a flow was trained for, in equal legs.

Where coefficients do not depend on time, Chapman and Kolmogorov's equation
$$\rho(x | m\delta, x_0) = \int\rho(x | \delta, y)\,\rho(y | (m - 1)\delta, x_0)\,dy$$
makes long times of short ones. The integral is a mean over fixed quasi-random noise, carried leg by
leg to the points $y_i$ from which the last leg begins: so the density is a mixture of densities of
the flow, positive and of unit mass, and smooth in all its arguments but where the number of legs
changes. Errors of earlier legs are spread by later ones, those of the last are averaged over where
it begins.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int
from scipy.special import ndtri

from ..flow.ansatz import AbstractAnsatz
from ..galerkin.collocation import sobol

# Points from which the last leg begins. On van der Pol's oscillator (`quick`, seed 0) at t = 5, in
# two legs, 64, 256 and 1024 of them led to 1.4e-3, 8.6e-4 and 8.7e-4; in three legs, whose points
# come from twice as many noises, 256 and 1024 to 2.7e-3 and 6.0e-4.
_NODES_OF_TWO, _NODES_OF_MORE = 256, 1024
# Of these, taken at once for each point of a query, so that memory stays bounded; derivatives make
# again what they need, for the same reason.
_TOGETHER = 64
# Times that exceed a leg by rounding are within it.
ROUNDING = 1e-6


class Legs(NamedTuple):
    """How a time is divided, and the ansatz at the length of a leg."""

    number: Int[Array, ""]
    length: Float[Array, ""]
    ansatz: AbstractAnsatz


@functools.cache
def nodes(legs: int, dim: int) -> Float[np.ndarray, "n legs-1 d"]:
    """Noise of all legs but the last, the same for every density."""
    count = _NODES_OF_TWO if legs == 2 else _NODES_OF_MORE
    return noise(0, count, legs, dim)


def noise(seed: int, count: int, legs: int, dim: int) -> Float[np.ndarray, "n legs-1 d"]:
    """Quasi-random noise of all legs but the last."""
    # Queries ask while they are traced; the key is a number all the same.
    with jax.ensure_compile_time_eval():
        cube = sobol(jr.key(seed), count, (legs - 1) * dim)
    return ndtri(cube).reshape(count, legs - 1, dim)


def count_of(t: Float[Array, "*batch"], reach: float, legs: int) -> Int[Array, "*batch"]:
    """The fewest legs, none longer than `reach`, that make up a time."""
    fewest = jnp.ceil(t / reach * (1 - ROUNDING)).astype(int)
    return jnp.clip(fewest, 1, legs)


def walk(
    legs: Legs,
    noise: Float[Array, "n d"],
    start: Float[Array, " d+k"],
    moves: Int[Array, ""] | int,
) -> Float[Array, " d+k"]:
    """Where the first `moves` rows of noise lead from a start, which keeps what follows it."""

    def move(now: Array, row: tuple[Array, Array]) -> tuple[Array, None]:
        index, noise = row
        moved = legs.ansatz.from_noise(noise, legs.length, now)
        return jnp.where(index < moves, now.at[: len(moved)].set(moved), now), None

    rows = jnp.arange(len(noise)), jnp.asarray(noise, start.dtype)
    return jax.lax.scan(move, start, rows)[0]


def beginnings(
    legs: Legs, start: Float[Array, " d+k"], noise: Float[np.ndarray, "n legs-1 d"]
) -> Float[Array, "n d+k"]:
    """Where the last leg begins, for each row of noise."""
    last = jax.checkpoint(lambda rows: walk(legs, rows, start, legs.number - 1))
    return jax.lax.map(last, jnp.asarray(noise, start.dtype), batch_size=_TOGETHER)


def log_mean(legs: Legs, y: Float[Array, " d"], begins: Float[Array, "n d+k"]) -> Float[Array, ""]:
    """Log of the mean density after the last leg, over where it begins."""
    value = jax.checkpoint(lambda begin: legs.ansatz.log_prob(y, legs.length, begin))
    values = jax.lax.map(value, begins, batch_size=_TOGETHER)
    return logsumexp(values) - jnp.log(jnp.asarray(len(begins), y.dtype))


def log_mixture(
    legs: Legs,
    y: Float[Array, " d"],
    start: Float[Array, " d+k"],
    noise: Float[np.ndarray, "n legs-1 d"],
) -> Float[Array, ""]:
    """Log-density after all legs, as a mean over the noise of those before the last."""
    return log_mean(legs, y, beginnings(legs, start, noise))
