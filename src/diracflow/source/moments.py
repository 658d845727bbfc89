r"""Gaussian moment closure for every start by itself.

Mean and covariance follow $m' = E[b]$, $C' = E[\nabla b]C + CE[\nabla b]^\top + E[\Sigma]$ under
$N(m, C)$ with $C = 0$ at the start. Exact for linear SDEs; elsewhere it keeps to each start's own
path, as along a limit cycle. Where a density splits in two it stays with one of the parts, which
leaves the other far outside: there the common width of `ClosureSource` serves better.

A fixed number of exponential steps, equal in $\sqrt\tau$, each exact for the equation linearised in
its middle: no drift is too stiff. Where the time of the start varies, and coefficients thus depend
on time, Simpson's rule takes account of how they change along a step.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from ..problem.given import Given
from ..problem.moving_frame import Frame
from ..problem.sde import SDE
from .closure import mean_exponential
from .ensemble import nodes
from .gaussian import AbstractGaussianSource

_STEPS = 24
# Halvings of a step before the integral of the noise over it is a short series.
_DOUBLINGS = 7


class MomentSource(AbstractGaussianSource):
    """Mean and covariance by moment closure."""

    sde: SDE
    start_time: float | None = eqx.field(static=True, default=0.0)

    def frame(self, tau: Float[Array, ""], x0: Float[Array, " d+k"]) -> Frame:
        """Mean and Cholesky factor of the closed moments."""
        given = self.given(x0)

        def step(moments: _Moments, index: Array) -> tuple[_Moments, None]:
            before, after = (tau * (i / _STEPS) ** 2 for i in (index, index + 1))
            return self._step(given, moments, before, after - before), None

        x, length = given.start, tau / _STEPS**2
        start = _Moments(x, jnp.zeros((len(x), len(x)), x.dtype))
        # Apart from the others: the factor of a covariance that vanishes has no derivative.
        averages = self._averages(given, x, start.covariance, length / 2)
        change = self._change(given, x, start.covariance, (0.0, length), averages)
        first = _after(start, averages, length, change)
        last, _ = jax.lax.scan(step, first, jnp.arange(1, _STEPS, dtype=x0.dtype))
        return Frame(last.mean, _factor(last.covariance, tau))

    def _step(self, given: Given, moments: "_Moments", tau: Array, length: Array) -> "_Moments":
        """A step with averages half way, of second order."""
        spread = _factor(moments.covariance, tau)
        early = self._averages(given, moments.mean, spread, tau)
        middle, half_way = _after(moments, early, length / 2), tau + length / 2
        spread = _factor(middle.covariance, half_way)
        averages = self._averages(given, middle.mean, spread, half_way)
        change = self._change(given, middle.mean, spread, (tau, tau + length), averages)
        # The drift where the step begins, by the line through the middle.
        drift = averages.drift + averages.slope @ (moments.mean - middle.mean)
        return _after(moments, averages._replace(drift=drift), length, change)

    def _averages(self, given: Given, mean: Array, spread: Array, tau: ArrayLike) -> "_Averages":
        sde, time = given.sde, given.start_time + jnp.asarray(tau, mean.dtype)
        points = nodes(mean, spread)

        def at(x: Array) -> tuple[Array, Array, Array]:
            slope = jax.jacfwd(lambda y: sde.drift(time, y))(x)
            return sde.drift(time, x), slope, sde.covariance(time, x)

        return _Averages(*(jnp.mean(values, axis=0) for values in jax.vmap(at)(points)))

    def _change(
        self,
        given: Given,
        mean: Array,
        spread: Array,
        ends: tuple[ArrayLike, ArrayLike],
        middle: "_Averages",
    ) -> "tuple[_Averages, _Averages] | None":
        """How averages at the ends of a step differ from those half way, the law being fixed."""
        if self.start_time is not None:
            return None
        early, late = (self._averages(given, mean, spread, tau) for tau in ends)
        return jax.tree.map(jnp.subtract, early, middle), jax.tree.map(jnp.subtract, late, middle)


class _Moments(NamedTuple):
    mean: Float[Array, " d"]
    covariance: Float[Array, "d d"]


class _Averages(NamedTuple):
    """Means of drift, its slopes and the noise's covariance under a normal law."""

    drift: Float[Array, " d"]
    slope: Float[Array, "d d"]
    noise: Float[Array, "d d"]


def _after(
    moments: _Moments,
    averages: _Averages,
    length: Array,
    change: tuple[_Averages, _Averages] | None = None,
) -> _Moments:
    """Moments after a step of the linearised equation."""
    slope = averages.slope
    transfer, added = _linear_step(slope, averages.noise, length)
    covariance = transfer @ moments.covariance @ transfer.T + added
    mean = moments.mean + length * mean_exponential(slope * length) @ averages.drift
    if change is not None:
        early, late = change
        mean = mean + length / 6 * (transfer @ early.drift + late.drift)
        noise = transfer @ early.noise @ transfer.T + late.noise
        covariance = covariance + length / 6 * noise
    return _Moments(mean, (covariance + covariance.T) / 2)


def _factor(covariance: Float[Array, "d d"], tau: Float[Array, ""]) -> Float[Array, "d d"]:
    """Cholesky factor of what is of the order of `tau`, however short."""
    return jnp.sqrt(tau) * jnp.linalg.cholesky(covariance / tau)


def _linear_step(
    slope: Float[Array, "d d"], noise: Float[Array, "d d"], length: Float[Array, ""]
) -> tuple[Float[Array, "d d"], Float[Array, "d d"]]:
    r"""$e^{Ah}$ and $\int_0^he^{As}\Sigma e^{A^\top s}ds$, by halving and doubling."""
    short = length / 2**_DOUBLINGS
    a, eye = slope * short, jnp.eye(len(slope), dtype=slope.dtype)
    transfer = eye + a @ mean_exponential(a)
    # Terms of the series: each is (A X + X A^T) h / k of the one before.
    term = added = noise * short
    for k in range(2, 7):
        term = (a @ term + term @ a.T) / k
        added = added + term

    def double(_: int, state: tuple[Array, Array]) -> tuple[Array, Array]:
        transfer, added = state
        return transfer @ transfer, added + transfer @ added @ transfer.T

    return jax.lax.fori_loop(0, _DOUBLINGS, double, (transfer, added))
