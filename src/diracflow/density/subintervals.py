r"""Densities beyond the time that a flow was trained for, in legs.

Where coefficients do not depend on time, Chapman and Kolmogorov's equation
$$\rho(x | t + s, x_0) = \int\rho(x | t, y)\,\rho(y | s, x_0)\,dy$$
makes long times of short ones. The first leg and the last are equally long, between a half and the
whole of what was trained for, those between them are whole: their law does not depend on time.

The integral is a weighted mean over points $y_i$ from which the last leg begins: so the density is
a mixture of densities of the flow, positive and of unit mass, and smooth in all its arguments but
where the number of legs changes. Errors of earlier legs are spread by later ones, those of the last
are averaged over where it begins. In one and two dimensions the points are those of a lattice
(`density.lattice`); here they are walked to, by fixed quasi-random noise.
"""

import functools
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int
from scipy.special import ndtri

from ..flow.ansatz import AbstractAnsatz
from ..sde.quasi_random import sobol
from ..training.trajectory import Trajectory

# Points from which the last leg begins. On van der Pol's oscillator (`quick`, seed 0) at t = 5, in
# two legs, 64, 256 and 1024 of them led to 1.4e-3, 8.6e-4 and 8.7e-4; in three legs, whose points
# come from twice as many noises, 256 and 1024 to 2.7e-3 and 6.0e-4; in five, 1024 to 1.4e-3.
_NODES_OF_TWO, _NODES_OF_FEW, _NODES_OF_MORE = 256, 1024, 4096
_FEW = 4
# Of these, taken at once for each point of a query, so that memory stays bounded; derivatives make
# again what they need, for the same reason.
TOGETHER = 64
# Times that exceed a leg by rounding are within it.
ROUNDING = 1e-6


class Course(NamedTuple):
    """What was trained, up to which time, and how many legs of that there are at most."""

    ansatz: AbstractAnsatz
    trajectory: Trajectory
    reach: float
    most: int


class Legs(NamedTuple):
    """How a time is divided; the ansatz at the length of the outer legs, and of a whole one."""

    number: Int[Array, ""]
    length: Float[Array, ""]  # of the first and the last; others are whole
    ansatz: AbstractAnsatz
    reach: Float[Array, ""]
    whole: AbstractAnsatz


class Beginnings(NamedTuple):
    """Where the last leg begins, with weights that sum to one."""

    points: Float[Array, "n d+k"]
    weights: Float[Array, " n"]


@functools.cache
def nodes(legs: int, dim: int) -> Float[np.ndarray, "n legs-1 d"]:
    """Noise of all legs but the last, the same for every density."""
    few = _NODES_OF_TWO if legs == 2 else _NODES_OF_FEW
    count = few if legs <= _FEW else _NODES_OF_MORE
    return rows_of_noise(0, count, legs, dim)


def rows_of_noise(seed: int, count: int, legs: int, dim: int) -> Float[np.ndarray, "n legs-1 d"]:
    """Quasi-random noise of all legs but the last."""
    # Queries ask while they are traced; the key is a number all the same.
    with jax.ensure_compile_time_eval():
        cube = sobol(jr.key(seed), count, (legs - 1) * dim)
    return ndtri(cube).reshape(count, legs - 1, dim)


def count_of(t: Float[Array, "*batch"], reach: float, legs: int) -> Int[Array, "*batch"]:
    """The fewest legs, none longer than `reach`, that make up a time."""
    fewest = jnp.ceil(t / reach * (1 - ROUNDING)).astype(int)
    return jnp.clip(fewest, 1, legs)


def divided(course: Course, t: Float[Array, ""]) -> Legs:
    """The legs that make up a time."""
    reach = jnp.asarray(course.reach, t.dtype)
    at = lambda length: course.ansatz.at(course.trajectory(length))
    if course.most == 1:
        return Legs(jnp.ones((), int), t, at(t), reach, course.ansatz)
    number = count_of(t, course.reach, course.most)
    length = jnp.where(number == 1, t, (t - (number - 2).astype(t.dtype) * reach) / 2)
    return Legs(number, length, at(length), reach, at(reach))


def walk(
    legs: Legs,
    noise: Float[Array, "n d"],
    start: Float[Array, " d+k"],
    moves: Int[Array, ""] | int,
) -> Float[Array, " d+k"]:
    """Where the first `moves` rows of noise lead from a start, which keeps what follows it."""

    def move(now: Array, row: tuple[Array, Array]) -> tuple[Array, None]:
        index, noise = row
        ansatz, length = _leg(legs, index)
        moved = ansatz.from_noise(noise, length, now)
        return jnp.where(index < moves, now.at[: len(moved)].set(moved), now), None

    rows = jnp.arange(len(noise)), jnp.asarray(noise, start.dtype)
    return jax.lax.scan(move, start, rows)[0]


def walked(
    legs: Legs, start: Float[Array, " d+k"], noise: Float[np.ndarray, "n legs-1 d"]
) -> Beginnings:
    """Where the last leg begins for each row of noise, all of them alike."""
    last = jax.checkpoint(lambda rows: walk(legs, rows, start, legs.number - 1))
    points = jax.lax.map(last, jnp.asarray(noise, start.dtype), batch_size=TOGETHER)
    return Beginnings(points, jnp.full(len(points), 1 / len(points), start.dtype))


def log_mixture(legs: Legs, y: Float[Array, " d"], begins: Beginnings) -> Float[Array, ""]:
    """Log-density after the last leg, averaged over where it begins."""
    value = jax.checkpoint(lambda begin: legs.ansatz.log_prob(y, legs.length, begin))
    values = jax.lax.map(value, begins.points, batch_size=TOGETHER)
    return logsumexp(values, b=begins.weights)


def _leg(legs: Legs, index: Int[Array, ""]) -> tuple[AbstractAnsatz, Float[Array, ""]]:
    """The ansatz and the length of one leg."""
    inner = (index > 0) & (index < legs.number - 1)
    choose = lambda whole, outer: jnp.where(inner, whole, outer) if eqx.is_array(whole) else whole
    flow = jax.tree.map(choose, legs.whole.flow, legs.ansatz.flow)
    ansatz = eqx.tree_at(lambda a: a.flow, legs.ansatz, flow)
    return ansatz, jnp.where(inner, legs.reach, legs.length)
