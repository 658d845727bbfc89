r"""Total variation bounds for times of several subintervals.

By the triangle inequality, and because transitions do not increase the distance of two laws, the
distance is at most the sum of three parts: the bound of the first subinterval from its start, the
bounds of the later ones averaged over where they begin, and the distance between the mixture that
is evaluated and the integral that it approximates. The last part is estimated against a mixture of
many more simulated points. The scatter of that mixture makes the estimate larger, not smaller.
"""

from typing import TYPE_CHECKING, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..certify.certificate import Certificate, CertificateQuery, Estimate
from ..training.stages import parts
from .subintervals import Subintervals, count_of, log_mixture, noise_rows, simulate, simulated

if TYPE_CHECKING:
    from .composed import ComposedDensity

# Beginnings of later subintervals over which their bounds are averaged, and the factor by which
# each of them takes fewer samples.
_BEGINNINGS, _FEWER = 32, 32
# Parts of an estimate, and beginnings from which the second of them is estimated.
_PARTS, _FEW = ("first subinterval", "later subintervals", "mixture"), 4
# Points of the finer mixture, and draws at which it is compared with the evaluated one.
_FINER, _DRAWS = 2**14, 128


def composed_certificate(density: "ComposedDensity", query: CertificateQuery) -> Certificate:
    """Return the bounds of a composed density, which may exceed one."""
    times, starts, counts = _broadcast(density, query)
    bound, stderr = np.zeros(times.shape), np.zeros(times.shape)
    if np.any(counts == 1):
        within = query._replace(t=np.where(counts > 1, density.reach, times))
        bound, stderr = map(np.array, density._of_base("_error_bound")(within)[:2])
    key = query.key
    composed = [index for index in np.ndindex(bound.shape) if counts[index] > 1]
    for index in parts("error bound, all times and starts", composed):
        key, own_key = jr.split(key)
        one = query._replace(key=own_key, t=times[index], start=starts[index])
        bound[index], stderr[index] = _one_bound(density, one, int(counts[index]))
    return Certificate(bound, stderr)


def composed_estimate(density: "ComposedDensity", query: CertificateQuery) -> Estimate:
    """Return estimates for a composed density: sums over subintervals, and of the mixture."""
    times, starts, counts = _broadcast(density, query)
    sizes, squares = np.zeros((len(_PARTS), *times.shape)), np.zeros(times.shape)
    for number, index in enumerate(np.ndindex(times.shape)):
        key = jr.fold_in(query.key, number)
        one = query._replace(key=key, t=times[index], start=starts[index])
        if counts[index] == 1:
            found = density._of_base("_error_estimate")(one)
            sizes[(0, *index)], squares[index] = found.value, found.stderr**2
        else:
            several = _one_estimate(density, one, int(counts[index]))
            sizes[(slice(None), *index)], squares[index] = several
    return Estimate(sizes.sum(axis=0), np.sqrt(squares), dict(zip(_PARTS, sizes, strict=True)))


def _broadcast(
    density: "ComposedDensity", query: CertificateQuery
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return times, starts and numbers of subintervals, with all leading axes."""
    shape = np.broadcast_shapes(query.t.shape, query.start.shape[:-1])
    times = np.broadcast_to(query.t, shape)
    starts = np.broadcast_to(query.start, (*shape, query.start.shape[-1]))
    return times, starts, np.asarray(count_of(jnp.asarray(times), density._division))


class _Task(NamedTuple):
    """Queries of the base whose answers add up to that of several subintervals."""

    first: CertificateQuery
    later: CertificateQuery  # its times and starts are to be chosen from `begins`
    begins: Float[np.ndarray, "n later d+k"]
    gap: float  # distance of the evaluated mixture from a finer one
    gap_error: float


def _task(
    density: "ComposedDensity", query: CertificateQuery, count: int, with_gap: bool = True
) -> _Task:
    """Return the queries for one time of `count` subintervals from one start."""
    first_key, begin_key, later_key, gap_key = jr.split(query.key, 4)
    gap, gap_error = 0.0, 0.0
    with jax.enable_x64(True):
        start = jnp.asarray(query.start)
        times = _divided(density, jnp.asarray(float(query.t)))
        begins = np.asarray(_beginnings(density, times, begin_key, start, count - 1))
        if with_gap:
            gap, gap_error = map(float, _quadrature_gap(density, times, gap_key, start))
    first = query._replace(key=first_key, t=np.asarray(float(times.length)))
    return _Task(first, query._replace(key=later_key), begins, gap, gap_error)


def _one_estimate(
    density: "ComposedDensity", query: CertificateQuery, count: int
) -> tuple[tuple[float, float, float], float]:
    """Return the parts of an estimate, and the square of the standard error of their sum."""
    estimate = density._of_base("_error_estimate")
    # The sum over a lattice has no noise.
    task = _task(density, query, count, with_gap=density.lattice is None)
    first = estimate(task.first)
    # The distance over one subinterval, from a few of the places where later ones begin.
    rows = task.begins.reshape(-1, task.begins.shape[-1])
    few = rows[:: max(1, len(rows) // _FEW)][:_FEW]
    each = estimate(task.later._replace(t=np.asarray(density.reach), start=few))
    mean, spread = each.value.mean(), each.value.std(ddof=1) / np.sqrt(len(each.value))
    noise = np.hypot(spread, np.sqrt(np.mean(each.stderr**2) / len(each.value)))
    square = float(first.stderr) ** 2 + ((count - 1) * noise) ** 2 + task.gap_error**2
    return (float(first.value), float((count - 1) * mean), task.gap), float(square)


def _one_bound(
    density: "ComposedDensity", query: CertificateQuery, count: int
) -> tuple[float, float]:
    """Return the bound at one time of `count` subintervals from one start, and its error."""
    bound, task = density._of_base("_error_bound"), _task(density, query, count)
    first, lengths = bound(task.first), [density.reach] * (count - 2) + [float(task.first.t)]
    few = max(query.samples // _FEWER, 2)
    later = task.later._replace(t=np.array(lengths), start=task.begins, samples=few)
    each = bound(later).bound.sum(axis=1)  # subintervals of one path are dependent
    variance = first.stderr**2 + each.var(ddof=1) / len(each) + task.gap_error**2
    return first.bound + each.mean() + task.gap, np.sqrt(variance)


_divided = eqx.filter_jit(lambda density, t: density._at_time(t))


@eqx.filter_jit
def _beginnings(
    density: "ComposedDensity",
    times: Subintervals,
    key: PRNGKeyArray,
    start: Float[Array, " d+k"],
    later: int,
) -> Float[Array, "n later d+k"]:
    """Simulate where each of the later subintervals begins."""
    base = density._inner
    rows = jr.normal(key, (_BEGINNINGS, later, base.noise_dim))

    def all_of(rows: Float[Array, "later m"]) -> Float[Array, "later d+k"]:
        steps = range(1, later + 1)
        return jnp.stack([simulate(base, times, rows[:j], start, j) for j in steps])

    return jax.vmap(all_of)(rows)


@eqx.filter_jit
def _quadrature_gap(
    density: "ComposedDensity", times: Subintervals, key: PRNGKeyArray, start: Float[Array, " d+k"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return the total variation between evaluated and finer mixture, and its standard error."""
    base = density._inner
    rows = noise_rows(1, _FINER, density.legs, base.noise_dim)
    finer = simulated(base, times, start, rows)
    evaluated = density._beginnings(times, start)
    pick_key, last_key = jr.split(key)
    picked = finer.points[jr.randint(pick_key, (_DRAWS,), 0, len(finer.points))]
    last = jr.normal(last_key, (_DRAWS, base.noise_dim))

    def difference(rows: tuple[Array, Array]) -> Float[Array, ""]:
        begin, end = rows
        y = base._from_noise(times.outer, end, begin)
        # Half of the absolute difference has the same mean, but not these bounds, 0 and 1.
        gap = log_mixture(base, times, y, evaluated) - log_mixture(base, times, y, finer)
        return jnp.maximum(-jnp.expm1(gap), 0.0)

    sizes = jax.lax.map(difference, (picked, last))
    return jnp.mean(sizes), jnp.std(sizes, ddof=1) / jnp.sqrt(_DRAWS)
