r"""The density of one Euler--Maruyama step.

From $X(s) = x_0$ a single step of length $\tau$ gives the Gaussian
$\mathcal{N}(x_0 + b(s, x_0)\tau,\ \Sigma(s, x_0)\tau)$. It tends to the point mass at $x_0$ as
$\tau\to0$, so a flow that starts at the identity starts from the Dirac measure exactly.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..equation.moving_frame import Frame
from ..equation.small_matrices import cholesky
from ..sde.sde import SDE
from .gaussian_source import AbstractGaussianSource


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
