r"""Total variation bounds for times of several subintervals.

By the triangle inequality, and because transitions do not increase the distance of two laws, the
distance is at most the sum of three parts: the bound of the first subinterval from its start, the
bounds of the later ones averaged over where they begin, and the distance between the mixture that
is evaluated and the integral that it approximates. The last part is estimated against a mixture of
many more simulated points. The scatter of that mixture makes the estimate larger, not smaller.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

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


def composed_certificate(
    density: "ComposedDensity",
    base_bound: Callable[[CertificateQuery], Certificate],
    query: CertificateQuery,
) -> Certificate:
    """Return the bounds of a composed density, which may exceed one.

    **Arguments:**

    - `density`: the composed density.
    - `base_bound`: computes the bound of the base density, which may exceed one.
    - `query`: key, times and starts in coordinates, number of samples and precision.
    """
    t, x0 = query.t, query.start
    counts = np.asarray(count_of(jnp.asarray(t), density._division))
    if np.all(counts > 1):
        shape = np.broadcast_shapes(t.shape, x0.shape[:-1])
        bound, stderr = np.zeros(shape), np.zeros(shape)
    else:
        within = query._replace(t=np.where(counts > 1, density.reach, t))
        bound, stderr = map(np.array, base_bound(within)[:2])
    counts, times = (np.broadcast_to(values, bound.shape) for values in (counts, t))
    starts, key = np.broadcast_to(x0, (*bound.shape, x0.shape[-1])), query.key
    composed = [index for index in np.ndindex(bound.shape) if counts[index] > 1]
    for index in parts("error bound, all times and starts", composed):
        key, own_key = jr.split(key)
        one = query._replace(key=own_key, t=times[index], start=starts[index])
        found = _one_bound(density, base_bound, one, int(counts[index]))
        bound[index], stderr[index] = found.bound, found.stderr
    return Certificate(bound, stderr)


def composed_estimate(
    density: "ComposedDensity",
    base_estimate: Callable[[CertificateQuery], Estimate],
    query: CertificateQuery,
) -> Estimate:
    """Return estimates for a composed density: sums over subintervals, and of the mixture.

    **Arguments:**

    - `density`: the composed density.
    - `base_estimate`: the estimate of the base density.
    - `query`: key, times and starts in coordinates.
    """
    shape = np.broadcast_shapes(query.t.shape, query.start.shape[:-1])
    times = np.broadcast_to(query.t, shape)
    starts = np.broadcast_to(query.start, (*shape, query.start.shape[-1]))
    counts = np.asarray(count_of(jnp.asarray(times), density._division))
    sizes, squares = np.zeros((len(_PARTS), *shape)), np.zeros(shape)
    for number, index in enumerate(np.ndindex(shape)):
        key = jr.fold_in(query.key, number)
        one = query._replace(key=key, t=times[index], start=starts[index])
        if counts[index] == 1:
            found = base_estimate(one)
            sizes[(0, *index)], squares[index] = found.value, found.stderr**2
        else:
            sizes[(slice(None), *index)], squares[index] = _one_estimate(
                density, base_estimate, one, int(counts[index])
            )
    return Estimate(sizes.sum(axis=0), np.sqrt(squares), dict(zip(_PARTS, sizes, strict=True)))


def _one_estimate(
    density: "ComposedDensity",
    base_estimate: Callable[[CertificateQuery], Estimate],
    query: CertificateQuery,
    count: int,
) -> tuple[tuple[float, float, float], float]:
    """Return the parts of an estimate, and the square of the standard error of their sum."""
    first_key, begin_key, later_key, gap_key = jr.split(query.key, 4)
    gap, gap_error = 0.0, 0.0
    with jax.enable_x64(True):
        start = jnp.asarray(query.start)
        times = _divided(density, jnp.asarray(float(query.t)))
        begins = np.asarray(_beginnings(density, times, begin_key, start, count - 1))
        if density.lattice is None:  # the sum over a lattice has no noise
            gap, gap_error = map(float, _quadrature_gap(density, times, gap_key, start))
    first = base_estimate(query._replace(key=first_key, t=np.asarray(float(times.length))))
    # The distance over one subinterval, from a few of the places where later ones begin.
    few = begins.reshape(-1, begins.shape[-1])[:: max(1, begins.size // begins.shape[-1] // _FEW)]
    later = query._replace(key=later_key, t=np.asarray(density.reach), start=few[:_FEW])
    each = base_estimate(later)
    mean, spread = each.value.mean(), each.value.std(ddof=1) / np.sqrt(len(each.value))
    noise = np.hypot(spread, np.sqrt(np.mean(each.stderr**2) / len(each.value)))
    square = float(first.stderr) ** 2 + ((count - 1) * noise) ** 2 + gap_error**2
    return (float(first.value), float((count - 1) * mean), gap), float(square)


def _one_bound(
    density: "ComposedDensity",
    base_bound: Callable[[CertificateQuery], Certificate],
    query: CertificateQuery,
    count: int,
) -> Certificate:
    """Return the bound at one time of `count` subintervals from one start."""
    first_key, begin_key, later_key, gap_key = jr.split(query.key, 4)
    with jax.enable_x64(True):
        start = jnp.asarray(query.start)
        times = _divided(density, jnp.asarray(float(query.t)))
        begins = _beginnings(density, times, begin_key, start, count - 1)
        gap, gap_error = map(float, _quadrature_gap(density, times, gap_key, start))
    outer = float(times.length)
    first = base_bound(query._replace(key=first_key, t=np.asarray(outer)))
    later = query._replace(
        key=later_key,
        t=np.array([density.reach] * (count - 2) + [outer]),
        start=np.asarray(begins),
        samples=max(query.samples // _FEWER, 2),
    )
    each = base_bound(later).bound.sum(axis=1)  # subintervals of one path are dependent
    bound = first.bound + each.mean() + gap
    stderr = np.sqrt(first.stderr**2 + each.var(ddof=1) / len(each) + gap_error**2)
    return Certificate(bound, stderr)


@eqx.filter_jit
def _divided(density: "ComposedDensity", t: Float[Array, ""]) -> Subintervals:
    return density._at_time(t)


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
