"""Compiled programs that evaluate a transition density on checked arrays.

All take the density, times `t` and points that broadcast against each other; parameters and the
start time follow the components of `x0`.
"""

from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from .broadcast import map_points
from .device_cache import compiled

if TYPE_CHECKING:
    from .transition_density import AbstractTransitionDensity


@compiled
def log_probs(density: "AbstractTransitionDensity", t: Array, x: Array, x0: Array) -> Array:
    """Evaluate the log-density at `x`; it is -inf where a component of `x` is infinite."""

    def at_point(state: Any, x: Array, x0: Array) -> Array:
        # At infinity closed formulas and flows would subtract infinite numbers.
        infinite = jnp.isinf(jnp.sum(jnp.abs(x)))  # False if another component is NaN
        value = density._log_prob(state, jnp.where(infinite, x0[: len(x)], x), x0)
        return jnp.where(infinite, -jnp.inf, value)

    return map_points(density._at_time, at_point, t, x, x0)


@compiled
def scores(density: "AbstractTransitionDensity", t: Array, x: Array, x0: Array) -> Array:
    """Evaluate the gradient of the log-density in `x`."""
    return map_points(density._at_time, jax.grad(density._log_prob, argnums=1), t, x, x0)


@compiled
def start_scores(density: "AbstractTransitionDensity", t: Array, x: Array, x0: Array) -> Array:
    """Evaluate the gradient of the log-density in the start, without parameters and start time."""
    gradient = jax.grad(density._log_prob, argnums=2)
    return map_points(density._at_time, lambda *args: gradient(*args)[: density.dim], t, x, x0)


@compiled
def images(density: "AbstractTransitionDensity", t: Array, noise: Array, x0: Array) -> Array:
    """Map rows of `noise_dim` standard normal numbers to states."""
    return map_points(density._at_time, density._from_noise, t, noise, x0)


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
