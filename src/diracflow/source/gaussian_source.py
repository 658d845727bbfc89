r"""Sources: a Gaussian for every start and time, represented by its frame.

Arguments `x0` are conditioning vectors: the start, followed by the parameters of the SDE and the
start time if these vary (`sde.conditioning`).

The frame has two uses. The source is evaluated and sampled through it, and the flow acts in its
coordinates. To add a source, implement `frame`.

The simplest source is one Euler--Maruyama step. From $X(s) = x_0$ a step of length $\tau$ gives
$\mathcal{N}(x_0 + b(s, x_0)\tau,\ \Sigma(s, x_0)\tau)$. It tends to the point mass at $x_0$ as
$\tau\to0$, so a flow that starts at the identity starts from the Dirac measure exactly.
"""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..equation.moving_frame import Frame
from ..equation.small_matrices import cholesky
from ..sde.conditioning import InitialCondition, initial_condition
from ..sde.sde import SDE


class AbstractGaussianSource(eqx.Module):
    r"""A Gaussian law $N(m, LL^\top)$ that tends to the point mass at $x_0$ as $\tau\to0$."""

    sde: eqx.AbstractVar[SDE]
    start_time: eqx.AbstractVar[float | None]  # `None` if it is part of `x0`

    @abc.abstractmethod
    def frame(self, tau: Float[Array, ""], x0: Float[Array, " d+k"]) -> Frame:
        """Return the mean and the Cholesky factor after a time `tau`.

        **Arguments:**

        - `tau`: the time since the start, positive.
        - `x0`: a conditioning vector.

        The result must be differentiable in both.
        """

    def initial_condition(self, x0: Float[Array, " d+k"]) -> InitialCondition:
        """Return the SDE, start and start time that the conditioning vector `x0` encodes."""
        return initial_condition(self.sde, self.start_time, x0)

    def log_prob(
        self, z: Float[Array, " d"], tau: Float[Array, ""], x0: Float[Array, " d+k"]
    ) -> Float[Array, ""]:
        """Return the log-density at `z` after a time `tau`; differentiable in all arguments."""
        frame = self.frame(tau, x0)
        return standard_log_prob(frame.standardise(z)) - frame.log_det()

    def from_noise(
        self, noise: Float[Array, " d"], tau: Float[Array, ""], x0: Float[Array, " d+k"]
    ) -> Float[Array, " d"]:
        """Return the point to which the source maps standard normal `noise`."""
        return self.frame(tau, x0).restore(noise)


def standard_log_prob(zeta: Float[Array, " d"]) -> Float[Array, ""]:
    """Return the log-density of the standard normal law."""
    return -0.5 * zeta @ zeta - 0.5 * len(zeta) * jnp.log(2 * jnp.pi)


class EulerSource(AbstractGaussianSource):
    """The Gaussian law of one Euler--Maruyama step.

    **Arguments:**

    - `sde`: the SDE.
    - `start_time`: the start time, or `None` if it is part of the conditioning vector.
    """

    sde: SDE
    start_time: float | None = eqx.field(static=True, default=0.0)

    def frame(self, tau: Float[Array, ""], x0: Float[Array, " d+k"]) -> Frame:
        r"""Return the frame with mean $x_0 + b\tau$ and covariance $\Sigma\tau$."""
        sde, x, s = self.initial_condition(x0)
        factor = cholesky(sde.covariance(s, x))
        return Frame(x + sde.drift(s, x) * tau, jnp.sqrt(tau) * factor)
