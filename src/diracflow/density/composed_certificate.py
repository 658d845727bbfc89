r"""A bound on the total variation for times of several legs.

By the triangle inequality, and because no transition brings two laws further apart, the distance
is at most the sum of three parts: the bound of the first leg from its start, those of the later
legs in the mean over where they begin, and the distance of the mixture that is deployed from the
integral that it stands for. The last is estimated against a mixture of many more points, walked to
by noise, whose own scatter makes the estimate larger rather than smaller.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..certify.certificate import Certificate, certificate
from .lattice import Lattice, weighed
from .subintervals import (
    Course,
    Legs,
    count_of,
    divided,
    log_mixture,
    nodes,
    rows_of_noise,
    walk,
    walked,
)

# Beginnings of later legs over which their bounds are averaged, and by how much fewer samples each
# of them takes.
_BEGINNINGS, _FEWER = 32, 32
# Points of the finer mixture, and draws at which it is compared with the deployed one.
_FINER, _DRAWS = 2**14, 128


def certificate_over_legs(
    course: Course,
    lattice: Lattice | None,
    key: PRNGKeyArray,
    t: Float[np.ndarray, "*batch"],
    x0: Float[np.ndarray, "*batch d+k"],
    samples: int,
    precision: float,
) -> Certificate:
    """`certificate` of a density that is composed of legs, over a lattice or by walking."""
    counts = np.asarray(count_of(jnp.asarray(t), course.reach, course.most))
    one = (course.ansatz, course.trajectory)
    if np.all(counts > 1):
        shape = np.broadcast_shapes(t.shape, x0.shape[:-1])
        bound, stderr = np.zeros(shape), np.zeros(shape)
    else:
        within = np.where(counts > 1, course.reach, t)
        bound, stderr = map(np.array, certificate(*one, key, within, x0, samples, precision))
    counts, times = (np.broadcast_to(values, bound.shape) for values in (counts, t))
    starts = np.broadcast_to(x0, (*bound.shape, x0.shape[-1]))
    for index in np.ndindex(bound.shape):
        if counts[index] == 1:
            continue
        key, own_key = jr.split(key)
        place = (float(times[index]), int(counts[index]), starts[index])
        after = _after(course, lattice, own_key, place, samples, precision)
        bound[index], stderr[index] = after
    # No two laws differ by more than one; noisy bounds are averaged before they are cut off.
    return Certificate(np.minimum(bound, 1.0), stderr)


def _after(
    course: Course,
    lattice: Lattice | None,
    key: PRNGKeyArray,
    place: tuple[float, int, Float[np.ndarray, " d+k"]],
    samples: int,
    precision: float,
) -> Certificate:
    """The bound after some legs from one start.

    **Arguments:**

    - `place`: the time, the number of legs in it, and the start.
    - `precision`: that of the arithmetic in which the density is evaluated.
    """
    t, count, start = place
    first_key, begin_key, later_key, gap_key = jr.split(key, 4)
    one = (course.ansatz, course.trajectory)
    with jax.enable_x64(True):
        legs = _divided(course, jnp.asarray(t))
        begins = _beginnings(legs, begin_key, jnp.asarray(start), count - 1)
        run = (course, lattice, legs, gap_key, jnp.asarray(start))
        gap, gap_error = map(float, _quadrature_gap(*run))
    outer = float(legs.length)
    first = certificate(*one, first_key, np.asarray(outer), start, samples, precision)
    fewer = max(samples // _FEWER, 2)
    lengths = np.array([course.reach] * (count - 2) + [outer])
    later = certificate(*one, later_key, lengths, np.asarray(begins), fewer, precision).bound
    each = later.sum(axis=1)  # legs of one path, which depend on each other
    bound = first.bound + each.mean() + gap
    stderr = np.sqrt(first.stderr**2 + each.var(ddof=1) / len(each) + gap_error**2)
    return Certificate(bound, stderr)


_divided = eqx.filter_jit(divided)


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
    course: Course,
    lattice: Lattice | None,
    legs: Legs,
    key: PRNGKeyArray,
    start: Float[Array, " d+k"],
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Total variation between the deployed mixture and a finer one, and its standard error."""
    dim = legs.ansatz.source.sde.dim
    finer = walked(legs, start, rows_of_noise(1, _FINER, course.most, dim))
    if lattice is None:
        deployed = walked(legs, start, nodes(course.most, dim))
    else:
        deployed = weighed(lattice, legs, start)
    pick_key, last_key = jr.split(key)
    picked = finer.points[jr.randint(pick_key, (_DRAWS,), 0, len(finer.points))]
    last = jr.normal(last_key, (_DRAWS, dim))

    def difference(rows: tuple[Array, Array]) -> Float[Array, ""]:
        begin, end = rows
        y = legs.ansatz.from_noise(end, legs.length, begin)
        # Half of the absolute difference has the same mean, but not these bounds, 0 and 1.
        gap = log_mixture(legs, y, deployed) - log_mixture(legs, y, finer)
        return jnp.maximum(-jnp.expm1(gap), 0.0)

    sizes = jax.lax.map(difference, (picked, last))
    return jnp.mean(sizes), jnp.std(sizes, ddof=1) / jnp.sqrt(_DRAWS)
