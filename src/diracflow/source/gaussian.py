r"""What a source is: a Gaussian for every start and time, known by its frame.

Arguments `x0` are all that is given when the process begins: the start, and behind it parameters of
the SDE and the time of the start where these vary (`problem.given`).

The frame does two jobs. Through it the source is evaluated and sampled, and in its coordinates the
flow works. A new source is a new `frame`.
"""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..equation.moving_frame import Frame
from ..sde.conditioning import Given, given
from ..sde.sde import SDE


class AbstractGaussianSource(eqx.Module):
    r"""A Gaussian law $N(m, LL^\top)$ that tends to the point mass at $x_0$ as $\tau\to0$."""

    sde: eqx.AbstractVar[SDE]
    start_time: eqx.AbstractVar[float | None]  # `None` where it is given with the start

    @abc.abstractmethod
    def frame(self, tau: Float[Array, ""], x0: Float[Array, " d+k"]) -> Frame:
        """Mean and Cholesky factor after a time `tau`; differentiable in both arguments."""

    def given(self, x0: Float[Array, " d+k"]) -> Given:
        """Equation, start and time of the start that a vector stands for."""
        return given(self.sde, self.start_time, x0)

    def log_prob(
        self, z: Float[Array, " d"], tau: Float[Array, ""], x0: Float[Array, " d+k"]
    ) -> Float[Array, ""]:
        """Log-density at `z` after a time `tau`; differentiable in all three."""
        frame = self.frame(tau, x0)
        return standard_log_prob(frame.standardise(z)) - frame.log_det()

    def from_noise(
        self, noise: Float[Array, " d"], tau: Float[Array, ""], x0: Float[Array, " d+k"]
    ) -> Float[Array, " d"]:
        """The point reached with standard normal `noise`."""
        return self.frame(tau, x0).restore(noise)


def standard_log_prob(zeta: Float[Array, " d"]) -> Float[Array, ""]:
    """Log-density of the standard normal law."""
    return -0.5 * zeta @ zeta - 0.5 * len(zeta) * jnp.log(2 * jnp.pi)
