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

from ..certify.certificate import Certificate, CertificateQuery
from ..training.stages import parts
from .subintervals import Subintervals, count_of, log_mixture, noise_rows, simulate, simulated

if TYPE_CHECKING:
    from .composed import ComposedDensity

# Beginnings of later subintervals over which their bounds are averaged, and the factor by which
# each of them takes fewer samples.
_BEGINNINGS, _FEWER = 32, 32
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
        bound, stderr = map(np.array, base_bound(within))
    counts, times = (np.broadcast_to(values, bound.shape) for values in (counts, t))
    starts, key = np.broadcast_to(x0, (*bound.shape, x0.shape[-1])), query.key
    composed = [index for index in np.ndindex(bound.shape) if counts[index] > 1]
    for index in parts("error bound, all times and starts", composed):
        key, own_key = jr.split(key)
        one = query._replace(key=own_key, t=times[index], start=starts[index])
        bound[index], stderr[index] = _one_bound(density, base_bound, one, int(counts[index]))
    return Certificate(bound, stderr)


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
