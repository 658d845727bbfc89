r"""A bound on the total variation for times of several legs.

By the triangle inequality, and because no transition brings two laws further apart, the distance
is at most the sum of three parts: the bound of the first leg from its start, those of the later
legs in the mean over where they begin, and the distance of the mixture that is deployed from the
integral that it stands for. The last is estimated against a mixture of sixteen times as many
points, whose own scatter makes the estimate larger rather than smaller.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..certify.certificate import Certificate, certificate
from ..flow.ansatz import AbstractAnsatz
from ..training.trajectory import Trajectory
from .legs import Legs, beginnings, count_of, log_mean, nodes, noise, walk

# Beginnings of later legs over which their bounds are averaged, and by how much fewer samples each
# of them takes.
_BEGINNINGS, _FEWER = 32, 8
# Points of the finer mixture for each of the deployed one, and draws at which the two are compared.
_FINER, _DRAWS = 16, 128


def certificate_over_legs(
    ansatz: AbstractAnsatz,
    trajectory: Trajectory,
    reach: float,
    legs: int,
    key: PRNGKeyArray,
    t: Float[np.ndarray, "*batch"],
    x0: Float[np.ndarray, "*batch d+k"],
    samples: int,
    precision: float,
) -> Certificate:
    """`certificate` of a density that was trained up to `reach` and has so many legs at most."""
    counts = np.asarray(count_of(jnp.asarray(t), reach, legs))
    within = np.where(counts > 1, reach, t)
    found = certificate(ansatz, trajectory, key, within, x0, samples, precision)
    if np.all(counts == 1):
        return found
    bound, stderr = map(np.array, found)
    counts, times = (np.broadcast_to(values, bound.shape) for values in (counts, t))
    starts = np.broadcast_to(x0, (*bound.shape, x0.shape[-1]))
    for index in np.ndindex(bound.shape):
        if counts[index] == 1:
            continue
        division = int(counts[index]), float(times[index] / counts[index]), legs
        key, own_key = jr.split(key)
        run = (ansatz, trajectory, own_key)
        bound[index], stderr[index] = _after(*run, division, starts[index], samples, precision)
    return Certificate(bound, stderr)


def _after(
    ansatz: AbstractAnsatz,
    trajectory: Trajectory,
    key: PRNGKeyArray,
    division: tuple[int, float, int],
    start: Float[np.ndarray, " d+k"],
    samples: int,
    precision: float,
) -> Certificate:
    """The bound after some legs from one start.

    **Arguments:**

    - `division`: the number of legs, the length of each, and how many the density has at most.
    - `precision`: that of the arithmetic in which the density is evaluated.
    """
    count, length, most = division
    first_key, begin_key, later_key, gap_key = jr.split(key, 4)
    one = (ansatz, trajectory)
    time = np.asarray(length)
    first = certificate(*one, first_key, time, start, samples, precision)
    with jax.enable_x64(True):
        legs = Legs(
            jnp.asarray(count), jnp.asarray(length), ansatz.at(trajectory(jnp.asarray(time)))
        )
        begins = _beginnings(legs, begin_key, jnp.asarray(start), count - 1)
        gap, gap_error = map(float, _quadrature_gap(legs, gap_key, jnp.asarray(start), most))
    fewer = max(samples // _FEWER, 2)
    places = np.asarray(begins)
    later = certificate(*one, later_key, time, places, fewer, precision).bound
    each = later.sum(axis=1)  # legs of one path, which depend on each other
    bound = first.bound + each.mean() + gap
    stderr = np.sqrt(first.stderr**2 + each.var(ddof=1) / len(each) + gap_error**2)
    return Certificate(np.minimum(bound, 1.0), stderr)


@eqx.filter_jit
def _beginnings(
    legs: Legs, key: PRNGKeyArray, start: Float[Array, " d+k"], later: int
) -> Float[Array, "n later d+k"]:
    """Draws of where each of the later legs begins."""
    rows = jr.normal(key, (_BEGINNINGS, later, legs.ansatz.source.sde.dim))

    def all_of(rows: Float[Array, "later d"]) -> Float[Array, "later d+k"]:
        return jnp.stack([walk(legs, rows[:j], start, j) for j in range(1, later + 1)])

    return jax.vmap(all_of)(rows)


@eqx.filter_jit
def _quadrature_gap(
    legs: Legs, key: PRNGKeyArray, start: Float[Array, " d+k"], most: int
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Total variation between the deployed mixture and a finer one, and its standard error."""
    dim = legs.ansatz.source.sde.dim
    coarse = nodes(most, dim)
    tables = (coarse, noise(1, _FINER * len(coarse), most, dim))
    deployed, finer = (beginnings(legs, start, table) for table in tables)
    pick_key, last_key = jr.split(key)
    picked = finer[jr.randint(pick_key, (_DRAWS,), 0, len(finer))]
    last = jr.normal(last_key, (_DRAWS, dim))

    def difference(rows: tuple[Array, Array]) -> Float[Array, ""]:
        begin, end = rows
        y = legs.ansatz.from_noise(end, legs.length, begin)
        # Half of the absolute difference has the same mean, but not these bounds, 0 and 1.
        return jnp.maximum(-jnp.expm1(log_mean(legs, y, deployed) - log_mean(legs, y, finer)), 0.0)

    sizes = jax.lax.map(difference, (picked, last))
    return jnp.mean(sizes), jnp.std(sizes, ddof=1) / jnp.sqrt(_DRAWS)
