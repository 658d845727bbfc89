r"""The density of one Euler--Maruyama step.

From $X(s) = x_0$ a single step of length $\tau$ gives the Gaussian
$\mathcal{N}(x_0 + b(s, x_0)\tau,\ \Sigma(s, x_0)\tau)$. It tends to the point mass at $x_0$ as
$\tau\to0$, so a flow that starts at the identity starts from the Dirac measure exactly.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..problem.moving_frame import Frame
from ..problem.sde import SDE
from .gaussian import AbstractGaussianSource


class EulerSource(AbstractGaussianSource):
    """Gaussian law of one Euler--Maruyama step from `start_time`."""

    sde: SDE
    start_time: float = eqx.field(static=True, default=0.0)

    def frame(self, tau: Float[Array, ""], x0: Float[Array, " d"]) -> Frame:
        r"""$x_0 + b(s, x_0)\tau$, and $\sqrt\tau$ times the Cholesky factor of $\Sigma(s, x_0)$."""
        start = jnp.asarray(self.start_time, x0.dtype)
        factor = jnp.linalg.cholesky(self.sde.covariance(start, x0))
        return Frame(x0 + self.sde.drift(start, x0) * tau, jnp.sqrt(tau) * factor)
