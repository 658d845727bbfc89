r"""A reference density in any dimension: many simulated paths, and a last short kernel.

$$\rho(x | t, x_0) = E[\rho(x | \delta, X(t-\delta))],$$

where the expectation is over simulated paths, and the density over the short time $\delta$ is
Gaussian, with the mean and covariance of moment closure. Its error vanishes with $\delta$, while
the variance of the mean grows. A second kernel of half the length shows how large the error is.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from ..sde.argument_checks import (
    checked_count,
    checked_key,
    checked_number,
    checked_one_point,
    checked_point,
)
from ..sde.chart import Chart
from ..sde.domains import require_inside
from ..sde.heun import heun_paths
from ..sde.parameters import Params
from ..sde.sde import SDE
from ..source.gaussian_source import standard_log_prob
from ..source.moments import MomentSource, graded_basis
from ..transition.transition_density import AbstractTransitionDensity
from ..uses.underlying_sde import began_at, equation_of, member_of, scalars

# Paths that are simulated at once, and Runge--Kutta steps of the kernel's moments.
_CHUNK, _KERNEL_STEPS = 4096, 16
# Lengths of kernels that are tried for a distance, relative to the time.
_KERNELS = (1 / 8, 1 / 16, 1 / 32, 1 / 64)


class Reference(NamedTuple):
    """Log-densities, and how accurate they are."""

    log_prob: Float[np.ndarray, " n"]
    stderr: Float[np.ndarray, " n"]  # of the log-density, from the number of paths
    bias: Float[np.ndarray, " n"]  # its change if the kernel is half as long; has noise itself


def reference(
    sde: SDE,
    x: Float[ArrayLike, "n d"],
    t: float,
    x0: Float[ArrayLike, " d"],
    *,
    start_time: float = 0.0,
    key: PRNGKeyArray | int = 0,
    paths: int = 2**16,
    steps: int = 256,
    kernel: float = 0.125,
) -> Reference:
    """Return log-densities of an SDE by simulation, without any learned density.

    **Arguments:**

    - `sde`: the SDE, without free parameters.
    - `x`: states, one a row.
    - `t`: the time since the start.
    - `x0`: the start.
    - `start_time`: the time of the start.
    - `key`: a random key, or a seed.
    - `paths`: the number of simulated paths, rounded up to a multiple of 4096.
    - `steps`: the number of time steps of each path.
    - `kernel`: the length of the last kernel, relative to `t`.

    **Returns:**

    A `Reference` of NumPy arrays, computed in float64.
    """
    key = checked_key(key)
    paths, steps = checked_count("paths", paths), checked_count("steps", steps)
    t, share = checked_number("t", t), checked_number("kernel", kernel)
    began = checked_number("start_time", start_time)
    if t <= 0 or not 0 < share < 1:
        raise ValueError(f"`t` must be positive, `kernel` between 0 and 1; got {t:g}, {share:g}.")
    if sde.params:
        raise ValueError("`sde` must have no free parameters; fix them with `sde.at(...)`.")
    with jax.enable_x64(True):
        start, points = checked_one_point("x0", x0, sde.dim), checked_point("x", x, sde.dim, True)
        if points.ndim != 2:
            raise ValueError(f"`x` must hold one state a row; got shape {points.shape}.")
        chart = Chart(sde, sde.domain)
        require_inside(sde.domain, start)
        ends, log_slopes = jax.vmap(chart.end)(points)
        equation, y0 = chart.equation(), chart.start(start)
        basis = graded_basis(equation, began, np.asarray(y0))
        source = MomentSource(equation, None, basis, _KERNEL_STEPS)
        path = jnp.append(y0, began), (jnp.asarray(t), jnp.asarray(t * share)), steps
        keys = [jr.fold_in(key, chunk) for chunk in range(-(-paths // _CHUNK))]
        sums = [_log_sums(source, own, *path, ends) for own in keys]
        first, second = (logsumexp(jnp.stack(parts), axis=0) for parts in zip(*sums, strict=True))
        count = len(sums) * _CHUNK
        found, shorter = first - np.log(count)
        variance = jnp.exp(second[0] - 2 * first[0]) - 1 / count
    _require_finite(found, t, x0, steps)
    values = found + log_slopes, jnp.sqrt(jnp.maximum(variance, 0.0)), shorter - found
    return Reference(*map(np.asarray, values))


class MeasuredDistance(NamedTuple):
    """A total variation distance."""

    value: float
    stderr: float


def measured_distance(
    density: AbstractTransitionDensity,
    t: float,
    x0: Float[ArrayLike, " d"],
    *,
    sde: SDE | None = None,
    params: Params | None = None,
    start_time: float | None = None,
    key: PRNGKeyArray | int = 0,
    points: int = 256,
    paths: int = 2**16,
) -> MeasuredDistance:
    r"""Estimate the total variation distance of a density from the density of its SDE.

    It is $E[(1 - p/q)_+]$ over draws of the density $q$, with $p$ from `reference`. The noise of
    the reference is taken off the square of this mean, as if $p/q$ were normal. The kernel of the
    reference is halved until this changes the estimate by less than its standard error, or until
    noise outweighs the change.

    **Arguments:**

    - `density`: a density, learned or exact.
    - `t`, `x0`: one time and one start.
    - `sde`: the SDE; by default that of the density.
    - `params`, `start_time`: as in the density's queries.
    - `key`: a random key, or a seed.
    - `points`: the number of draws.
    - `paths`: the number of simulated paths.

    **Returns:**

    The estimate, and a standard error that includes the noise of the reference and the change from
    a kernel of twice the length.
    """
    fixed, began = scalars(density, params), began_at(density, start_time, "start_time")
    point_key, path_key = jr.split(checked_key(key))
    equation = member_of(equation_of(density, sde), fixed)
    query: dict = {"params": fixed or None, "start_time": start_time}
    with jax.enable_x64(True):
        x = density.sample(point_key, t, x0, checked_count("points", points, least=2), **query)
        log_q = np.asarray(density.log_prob(x, t, x0, **query))

    def estimate(kernel: float) -> MeasuredDistance:
        options: dict = {"start_time": began, "key": path_key, "paths": paths, "kernel": kernel}
        return _distance(reference(equation, x, t, x0, **options), log_q)

    last, best = estimate(_KERNELS[0]), MeasuredDistance(1.0, np.inf)
    for kernel in _KERNELS[1:]:
        before, last = last, estimate(kernel)
        change = abs(last.value - before.value)
        found = MeasuredDistance(last.value, float(np.hypot(last.stderr, change)))
        best = min(best, found, key=lambda distance: distance.stderr)
        # Shorter kernels have more noise, which at last outweighs what they gain.
        if change <= last.stderr or last.stderr > best.stderr:
            break
    return best


def _distance(found: Reference, log_q: Float[np.ndarray, " n"]) -> MeasuredDistance:
    """Return the distance from a reference of a density with the logarithms `log_q` at draws."""
    ratio = np.exp(np.minimum(found.log_prob - log_q, 50.0))
    missing = np.maximum(1 - ratio, 0.0)
    noise = float(np.mean(found.stderr * ratio)) / np.sqrt(2 * np.pi)
    value = np.sqrt(max(missing.mean() ** 2 - noise**2, 0.0))
    # Points share the paths of the reference, so that its noise does not average out.
    stderr = np.hypot(missing.std(ddof=1) / np.sqrt(len(missing)), noise / 2)
    return MeasuredDistance(float(value), float(stderr))


def _require_finite(found: Array, t: float, x0: ArrayLike, steps: int) -> None:
    if np.any(np.isnan(found)):
        raise ValueError(
            f"Simulated paths from {np.asarray(x0).tolist()} are not finite at t={t:g}: {steps} "
            "steps are too few for this drift, or paths explode. Increase `steps`."
        )


@eqx.filter_jit
def _log_sums(
    source: MomentSource,
    key: Array,
    start: Float[Array, " d+1"],
    t: tuple[Float[Array, ""], Float[Array, ""]],
    steps: int,
    x: Float[Array, "n d"],
) -> tuple[Float[Array, "2 n"], Float[Array, "2 n"]]:
    """Return logarithms of sums over a chunk of paths, of kernels and of their squares.

    `t` has the time since the start and the length of the kernel. The second kernel begins half
    its length later.
    """
    until, last = t
    times, starts = jnp.stack([until - last, until - last / 2]), jnp.tile(start, (_CHUNK, 1))
    early, late = heun_paths(source.sde, None, key, starts, times, steps)

    def of_kernel(states: Array, length: Array) -> tuple[Array, Array]:
        begins = jnp.full((len(states), 1), start[-1] + until - length)
        given = jnp.concatenate([states, begins], axis=1)
        frames = jax.vmap(lambda g: source.frame(length, g))(given)
        log_dets = jax.vmap(lambda frame: frame.log_det())(frames)

        def sums(x: Array) -> tuple[Array, Array]:
            zeta = jax.vmap(lambda frame: frame.standardise(x))(frames)
            log_kernels = jax.vmap(standard_log_prob)(zeta) - log_dets
            return logsumexp(log_kernels), logsumexp(2 * log_kernels)

        return jax.lax.map(sums, x)

    first, second = zip(of_kernel(early, last), of_kernel(late, last / 2), strict=True)
    return jnp.stack(first), jnp.stack(second)
