r"""A Gaussian that follows restoring drifts.

A single Euler step runs away where the drift pulls back: $x_0 + b(x_0)\tau$ overshoots, and
$\Sigma(x_0)\tau$ widens for ever. This source takes the mean from Gaussian closure, for every start
by itself, and the width from the ensemble of all starts. It is as wide as the ensemble after a long
time, so that a density that has split in two modes is within reach, and starts share its shape,
which leaves the flow less to undo. For linear SDEs it is exact, and as $\tau\to0$ it is the Euler
step.

The mean follows $m' = E[b]$ under a normal law around $m$ as wide as the source, by a fixed number
of exponential steps, equal in $\sqrt\tau$: exact for linear equations, stable for stiff ones.
Elsewhere their errors do no harm, for the flow's equation holds in any smooth frame.

Of an SDE with parameters there is one ensemble, that of all of them; each has its own mean and its
own size of the noise.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..equation.moving_frame import Frame
from ..equation.small_matrices import cholesky
from ..sde.conditioning import Given
from ..sde.linear_step import mean_exponential
from ..sde.sde import SDE
from .ensemble import Ensemble, doublings, nodes
from .gaussian import AbstractGaussianSource

_STEPS = 16


class ClosureSource(AbstractGaussianSource):
    """Mean by closure for every start, covariance by the ensemble's linearisation."""

    sde: SDE
    ensemble: Ensemble
    start_time: float | None = eqx.field(static=True)

    def frame(self, tau: Float[Array, ""], x0: Float[Array, " d+k"]) -> Frame:
        r"""The mean, and the factor $\sqrt\tau M(\tau)$ times that of the noise.

        The noise is that at the start as long as paths remember it.
        """
        clock, given = jnp.sqrt(tau), self.given(x0)
        memory, common = self.ensemble.memory(clock), self._common(given)
        own = given.sde.covariance(given.start_time, given.start)
        noise = memory * own + (1 - memory) * common
        factor = clock * self.ensemble.widening(clock) @ cholesky(noise)
        return Frame(self._mean(clock, given, common), factor)

    def _common(self, given: Given) -> Float[Array, "d d"]:
        """The noise that paths from all starts share when they have forgotten theirs."""
        if len(self.ensemble.nodes) == 0:
            return jnp.asarray(self.ensemble.covariance, given.start.dtype)
        points = jnp.asarray(self.ensemble.nodes, given.start.dtype)
        at = jax.vmap(lambda x: given.sde.covariance(given.start_time, x))
        return jnp.mean(at(points), axis=0)

    def _mean(
        self, clock: Float[Array, ""], given: Given, common: Float[Array, "d d"]
    ) -> Float[Array, " d"]:
        root, x0 = cholesky(common), given.start

        def step(mean: Array, index: Array) -> tuple[Array, None]:
            before, after = clock * index / _STEPS, clock * (index + 1) / _STEPS
            middle = jnp.sqrt((before**2 + after**2) / 2)
            spread = before * self.ensemble.widening(before) @ root
            slopes, length = self.ensemble.slopes(middle), after**2 - before**2
            time = given.start_time + middle**2
            return self._exponential_step(given.sde, mean, time, length, slopes, spread), None

        return jax.lax.scan(step, x0, jnp.arange(_STEPS, dtype=x0.dtype))[0]

    def _exponential_step(
        self, sde: SDE, mean: Array, time: Array, length: Array, slopes: Array, spread: Array
    ) -> Float[Array, " d"]:
        def drift(x: Array) -> Array:
            return sde.drift(time, x)

        points = nodes(mean, spread)
        along = jnp.mean(jax.vmap(drift)(points), axis=0)
        turned = jax.vmap(lambda x: jax.jvp(drift, (x,), (along,))[1])(points)
        # Where a start feels other slopes than the ensemble its step is damped: an explicit step
        # down a steep wall would land on the other side.
        excess = jnp.sum((jnp.mean(turned, axis=0) - slopes @ along) ** 2) * length**2
        size = jnp.sum(along**2)
        twice = doublings(self.ensemble.stiffness, _STEPS)
        damping = jnp.sqrt(1 + excess / jnp.where(size > 0, size, 1.0))
        return mean + length * mean_exponential(slopes * length, twice) @ along / damping
