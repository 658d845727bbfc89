r"""Division of a time into subintervals, and the mixture over where the last one begins.

If coefficients do not depend on time, the Chapman--Kolmogorov equation
$$\rho(x | t + s, x_0) = \int\rho(x | t, y)\,\rho(y | s, x_0)\,dy$$
gives densities at long times from densities at short ones. The first and the last subinterval have
equal lengths, between a half and the whole of the longest time `reach`; the others have length
`reach`, so that their law does not depend on time.

The integral is a weighted mean over points $y_i$ at which the last subinterval begins. The result
is a mixture of densities, positive and of unit mass, and smooth in all arguments except where the
number of subintervals changes. In one and two dimensions the points are those of a lattice
(`density.lattice`). Here they are simulated from fixed quasi-random noise.
"""

import functools
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int
from scipy.special import ndtri

from ..planning.settings import MOST_LEGS
from ..sde.quasi_random import sobol
from ..transition.transition_density import AbstractTransitionDensity

# Points at which the last subinterval begins. For van der Pol's oscillator (`quick`, seed 0) at
# t = 5 and two subintervals, 64, 256 and 1024 points gave errors of 1.4e-3, 8.6e-4 and 8.7e-4;
# with three subintervals 256 and 1024 gave 2.7e-3 and 6.0e-4; with five, 1024 gave 1.4e-3.
_NODES_OF_TWO, _NODES_OF_FEW, _NODES_OF_MORE = 256, 1024, 4096
_FEW = 4
# Points evaluated at once for each point of a query, which bounds the memory. Derivatives compute
# intermediate values again, for the same reason.
TOGETHER = 64
# Relative rounding of times: a time that exceeds a subinterval by less is within it.
ROUNDING = 1e-6


class Division(NamedTuple):
    """The longest subinterval and the largest number of subintervals of a composed density."""

    reach: float
    most: int


class Subintervals(NamedTuple):
    """The subintervals of one time, with the states of the base density at their lengths."""

    number: Int[Array, ""]
    length: Float[Array, ""]  # of the first and the last; the others have length `reach`
    outer: Any  # `_at_time(length)`
    inner: Any  # `_at_time(reach)`


class Beginnings(NamedTuple):
    """Points at which the last subinterval begins, with weights that sum to one."""

    points: Float[Array, "n d+k"]
    weights: Float[Array, " n"]


def division(horizon: float, reach: float) -> Division:
    """Return the division that the horizon needs."""
    most = max(1, math.ceil(horizon / reach * (1 - 1e-9)))
    if most > MOST_LEGS:
        raise ValueError(
            f"A horizon of {horizon:g} needs {most} subintervals of {reach:g}; at most {MOST_LEGS} "
            f"are possible. Learn the density up to {horizon / MOST_LEGS:g} at least."
        )
    return Division(reach, most)


@functools.cache
def nodes(most: int, dim: int) -> Float[np.ndarray, "n most-1 m"]:
    """Return the noise of all subintervals but the last, the same for every density."""
    few = _NODES_OF_TWO if most == 2 else _NODES_OF_FEW
    count = few if most <= _FEW else _NODES_OF_MORE
    return noise_rows(0, count, most, dim)


def noise_rows(seed: int, count: int, most: int, dim: int) -> Float[np.ndarray, "n most-1 m"]:
    """Return quasi-random normal numbers for all subintervals but the last."""
    # Queries call this while they are traced; the key must stay a number.
    with jax.ensure_compile_time_eval():
        cube = sobol(jr.key(seed), count, (most - 1) * dim)
    return ndtri(cube).reshape(count, most - 1, dim)


def count_of(t: Float[Array, "*batch"], division: Division) -> Int[Array, "*batch"]:
    """Return the smallest number of subintervals for each time."""
    fewest = jnp.ceil(t / division.reach * (1 - ROUNDING)).astype(int)
    return jnp.clip(fewest, 1, division.most)


def divided(
    base: AbstractTransitionDensity, division: Division, t: Float[Array, ""]
) -> Subintervals:
    """Divide a time."""
    reach = jnp.asarray(division.reach, t.dtype)
    number = count_of(t, division)
    length = jnp.where(number == 1, t, (t - (number - 2).astype(t.dtype) * reach) / 2)
    return Subintervals(number, length, base._at_time(length), base._at_time(reach))


def simulate(
    base: AbstractTransitionDensity,
    times: Subintervals,
    noise: Float[Array, "n m"],
    start: Float[Array, " d+k"],
    steps: Int[Array, ""] | int,
) -> Float[Array, " d+k"]:
    """Simulate the first `steps` subintervals, one row of noise each.

    Parameters that follow the start are kept.
    """

    def step(now: Array, row: tuple[Array, Array]) -> tuple[Array, None]:
        index, noise = row
        moved = base._from_noise(_state(times, index), noise, now)
        return jnp.where(index < steps, now.at[: len(moved)].set(moved), now), None

    rows = jnp.arange(len(noise)), jnp.asarray(noise, start.dtype)
    return jax.lax.scan(step, start, rows)[0]


def simulated(
    base: AbstractTransitionDensity,
    times: Subintervals,
    start: Float[Array, " d+k"],
    noise: Float[np.ndarray, "n most-1 m"],
) -> Beginnings:
    """Simulate where the last subinterval begins, once for each row of noise."""
    last = jax.checkpoint(lambda rows: simulate(base, times, rows, start, times.number - 1))
    points = jax.lax.map(last, jnp.asarray(noise, start.dtype), batch_size=TOGETHER)
    return Beginnings(points, jnp.full(len(points), 1 / len(points), start.dtype))


def log_mixture(
    base: AbstractTransitionDensity, times: Subintervals, y: Float[Array, " d"], begins: Beginnings
) -> Float[Array, ""]:
    """Return the log of the mean density after the last subinterval."""
    value = jax.checkpoint(lambda begin: base._log_prob(times.outer, y, begin))
    values = jax.lax.map(value, begins.points, batch_size=TOGETHER)
    return logsumexp(values, b=begins.weights)


def _state(times: Subintervals, index: Int[Array, ""]) -> Any:
    """Return the state of the base density at the length of one subinterval."""
    is_inner = (index > 0) & (index < times.number - 1)
    choose = lambda inner, outer: (
        jnp.where(is_inner, inner, outer) if eqx.is_array(inner) else inner
    )
    return jax.tree.map(choose, times.inner, times.outer)
