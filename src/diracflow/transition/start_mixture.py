"""Mean densities over groups of starts, prepared for evaluation at many points."""

from typing import TYPE_CHECKING

import equinox as eqx
import jax.numpy as jnp
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from .programs import log_probs

if TYPE_CHECKING:
    from .transition_density import AbstractTransitionDensity


class StartMixture(eqx.Module):
    """Mixtures of a density over groups of starts.

    The starts are either given for each group and equally weighted, or shared by all groups, which
    then differ by their `weights`.
    """

    density: "AbstractTransitionDensity"
    t: Float[Array, ""]
    starts: Float[Array, "#groups n d+k"]
    weights: Float[Array, "groups n"] | None = None

    @property
    def rows(self) -> int:
        """Number of densities that are evaluated at each point."""
        return self.starts.shape[0] * self.starts.shape[1]

    def log_probs(self, x: Float[Array, " d"]) -> Float[Array, " groups"]:
        """Return the log of each group's mean density at one point."""
        values = log_probs(self.density, self.t, x, self.starts)
        if self.weights is not None:
            return logsumexp(values, axis=1, b=self.weights)
        return logsumexp(values, axis=1) - jnp.log(jnp.asarray(values.shape[1], values.dtype))
