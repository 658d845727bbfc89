r"""A Gaussian source for restoring drifts.

A single Euler step fails where the drift is restoring: $x_0 + b(x_0)\tau$ overshoots, and
$\Sigma(x_0)\tau$ grows without bound. This source takes the mean from Gaussian closure, for each
start separately, and the width from the ensemble of all starts. After a long time it is as wide as
the ensemble, so it covers a density that has split into two modes. All starts share its shape,
which the flow then need not correct. The source is exact for linear SDEs, and tends to the Euler
step as $\tau\to0$.

The mean follows $m' = E[b]$ under a normal law around $m$ with the width of the source. It is
integrated by a fixed number of exponential steps of equal length in $\sqrt\tau$, which are exact
for linear equations and stable for stiff ones. Otherwise their errors are harmless, because the
equation of the flow holds in any smooth frame.

An SDE with parameters has one ensemble for all parameter values. The mean and the size of the
noise depend on the parameters.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..equation.moving_frame import Frame
from ..equation.small_matrices import cholesky
from ..sde.conditioning import InitialCondition
from ..sde.linear_step import mean_exponential
from ..sde.sde import SDE
from .ensemble import Ensemble, doublings, nodes
from .gaussian_source import AbstractGaussianSource

# Steps of the mean. Any smooth frame will do for a fit, and fits evaluate many of them.
STEPS, FEW_STEPS = 16, 4


class ClosureSource(AbstractGaussianSource):
    """A Gaussian with the mean from moment closure and the covariance from the ensemble.

    **Arguments:**

    - `sde`: the SDE.
    - `ensemble`: moments of the ensemble of all starts.
    - `start_time`: the start time, or `None` if it is part of the conditioning vector.
    - `steps`: the number of steps of the mean.
    """

    sde: SDE
    ensemble: Ensemble
    start_time: float | None = eqx.field(static=True)
    steps: int = eqx.field(static=True, default=STEPS)

    def frame(self, tau: Float[Array, ""], x0: Float[Array, " d+k"]) -> Frame:
        r"""Return the mean, and $\sqrt\tau M(\tau)$ times the Cholesky factor of the noise.

        The noise is that at the start for as long as paths remember their start.
        """
        clock, initial = jnp.sqrt(tau), self.initial_condition(x0)
        memory, common = self.ensemble.memory(clock), self._common(initial)
        own = initial.sde.covariance(initial.start_time, initial.start)
        noise = memory * own + (1 - memory) * common
        factor = clock * self.ensemble.widening(clock) @ cholesky(noise)
        return Frame(self._mean(clock, initial, common), factor)

    def _common(self, initial: InitialCondition) -> Float[Array, "d d"]:
        """Return the covariance of the noise, averaged over the start law."""
        if len(self.ensemble.nodes) == 0:
            return jnp.asarray(self.ensemble.covariance, initial.start.dtype)
        points = jnp.asarray(self.ensemble.nodes, initial.start.dtype)
        at = jax.vmap(lambda x: initial.sde.covariance(initial.start_time, x))
        return jnp.mean(at(points), axis=0)

    def _mean(
        self, clock: Float[Array, ""], initial: InitialCondition, common: Float[Array, "d d"]
    ) -> Float[Array, " d"]:
        root = cholesky(common)

        def advance(mean: Array, step: _MeanStep) -> tuple[Array, None]:
            return self._exponential_step(initial, mean, step, root), None

        return jax.lax.scan(advance, initial.start, self._mean_steps(clock))[0]

    def _mean_steps(self, clock: Float[Array, ""]) -> "_MeanStep":
        """Return all that steps of the mean need and that no start changes, for all steps at once.

        Sixteen exponentials one after the other would take most of the time of a query.
        """
        doubled = doublings(self.ensemble.stiffness, self.steps)

        def at(index: Array) -> _MeanStep:
            before, after = clock * index / self.steps, clock * (index + 1) / self.steps
            middle = jnp.sqrt((before**2 + after**2) / 2)
            length, jacobian = after**2 - before**2, self.ensemble.drift_jacobian(middle)
            exponential = length * mean_exponential(jacobian * length, doubled)
            spread = before * self.ensemble.widening(before)
            return _MeanStep(middle**2, length, jacobian, exponential, spread)

        return jax.vmap(at)(jnp.arange(self.steps, dtype=clock.dtype))

    def _exponential_step(
        self, initial: InitialCondition, mean: Array, step: "_MeanStep", root: Array
    ) -> Float[Array, " d"]:
        def drift(x: Array) -> Array:
            return initial.sde.drift(initial.start_time + step.time, x)

        points = nodes(mean, step.spread @ root)
        along = jnp.mean(jax.vmap(drift)(points), axis=0)
        change = jax.vmap(lambda x: jax.jvp(drift, (x,), (along,))[1])(points)
        # The step is damped where the local Jacobian differs from that of the ensemble: an
        # explicit step down a steep wall would overshoot.
        excess = jnp.sum((jnp.mean(change, axis=0) - step.jacobian @ along) ** 2) * step.length**2
        size = jnp.sum(along**2)
        damping = jnp.sqrt(1 + excess / jnp.where(size > 0, size, 1.0))
        return mean + step.exponential @ along / damping


class _MeanStep(NamedTuple):
    """A step of the mean, but for the start.

    - `time`: time since the start at the middle of the step.
    - `length`: the length of the step.
    - `jacobian`: the drift Jacobian of the ensemble.
    - `exponential`: the integral of its exponential over the step.
    - `spread`: the factor by which paths from one point have spread before the step.
    """

    time: Float[Array, ""]
    length: Float[Array, ""]
    jacobian: Float[Array, "d d"]
    exponential: Float[Array, "d d"]
    spread: Float[Array, "d d"]
