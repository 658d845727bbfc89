r"""The density of one Euler--Maruyama step.

From $X(s) = x_0$ a single step of length $\tau$ gives the Gaussian
$\mathcal{N}(x_0 + b(s, x_0)\tau,\ \Sigma(s, x_0)\tau)$. It tends to the point mass at $x_0$ as
$\tau\to0$, so a flow that starts at the identity starts from the Dirac measure exactly.
"""

import equinox as eqx
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from ..problem.sde import SDE


class EulerSource(eqx.Module):
    """Gaussian law of one Euler--Maruyama step from `start_time`."""

    sde: SDE
    start_time: float = eqx.field(static=True, default=0.0)

    def mean(self, tau: Float[Array, ""], x0: Float[Array, " d"]) -> Float[Array, " d"]:
        r"""$x_0 + b(s, x_0)\tau$."""
        return x0 + self.sde.drift(self._start(x0), x0) * tau

    def factor(self, x0: Float[Array, " d"]) -> Float[Array, "d d"]:
        r"""Lower Cholesky factor of $\Sigma(s, x_0)$: the covariance is $\tau$ times its square."""
        return jnp.linalg.cholesky(self.sde.covariance(self._start(x0), x0))

    def log_prob(
        self, z: Float[Array, " d"], tau: Float[Array, ""], x0: Float[Array, " d"]
    ) -> Float[Array, ""]:
        """Log-density at `z` after a time `tau`; differentiable in all three."""
        factor = self.factor(x0)
        noise = solve_triangular(factor, z - self.mean(tau, x0), lower=True)
        log_det = jnp.sum(jnp.log(jnp.diag(factor))) + 0.5 * self.sde.dim * jnp.log(
            2 * jnp.pi * tau
        )
        return -0.5 * noise @ noise / tau - log_det

    def from_noise(
        self, noise: Float[Array, " d"], tau: Float[Array, ""], x0: Float[Array, " d"]
    ) -> Float[Array, " d"]:
        """The point reached with standard normal `noise`."""
        return self.mean(tau, x0) + jnp.sqrt(tau) * self.factor(x0) @ noise

    def _start(self, x0: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.asarray(self.start_time, x0.dtype)
