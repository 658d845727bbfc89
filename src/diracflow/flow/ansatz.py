r"""The density that is trained: a source carried through a flow.

$$P(x | \theta, \tau, x_0) = p_Z(n_\theta(x | x_0) | \tau, x_0)\,|\det\nabla n_\theta|.$$

Positivity and unit mass hold for every $\theta$; with $n_\theta$ the identity at $\tau = 0$ so
does the Dirac start.
"""

import equinox as eqx
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from ..source.euler import EulerSource
from .coupling_flow import CouplingFlow


class Ansatz(eqx.Module):
    """Source and flow; the parameters are the flow's floating-point arrays."""

    source: EulerSource
    flow: CouplingFlow

    @property
    def theta(self) -> Float[Array, " m"]:
        """The parameters of the flow as one vector."""
        return ravel_pytree(eqx.filter(self.flow, eqx.is_inexact_array))[0]

    def at(self, theta: Float[Array, " m"]) -> "Ansatz":
        """The same ansatz with other parameters."""
        parameters, rest = eqx.partition(self.flow, eqx.is_inexact_array)
        _, unravel = ravel_pytree(parameters)
        return Ansatz(self.source, eqx.combine(unravel(theta), rest))

    def log_prob(
        self, x: Float[Array, " d"], tau: Float[Array, ""], x0: Float[Array, " d"]
    ) -> Float[Array, ""]:
        """Log-density at `x`."""
        z, log_det = self.flow.to_source(x, x0)
        return self.source.log_prob(z, tau, x0) + log_det

    def from_noise(
        self, noise: Float[Array, " d"], tau: Float[Array, ""], x0: Float[Array, " d"]
    ) -> Float[Array, " d"]:
        """The state to which standard normal `noise` is carried."""
        return self.flow.from_source(self.source.from_noise(noise, tau, x0), x0)
