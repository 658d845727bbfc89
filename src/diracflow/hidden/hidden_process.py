"""A hidden process and the law of one observation of it."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..sde.domains import each
from ..transition.batching import in_batches
from ..transition.programs import images
from ..transition.transition_density import AbstractTransitionDensity, checked_query
from ..uses.underlying_sde import conditioning_at

Observe = Callable[[Float[Array, " d"], Array], Float[Array, ""]]


class Hidden(eqx.Module):
    """A hidden process with its parameters, and the log-likelihood of one observation."""

    density: AbstractTransitionDensity
    observe: Observe
    params: dict[str, Array]

    def conditioning(self, begin: Float[Array, ""]) -> dict[str, Any]:
        """Return the keyword arguments of a query that starts at the time `begin`."""
        return conditioning_at(self.density, self.params, begin)

    def images(self, noise: Array, t: Array, x: Array, begin: Array) -> Float[Array, "n d"]:
        """Map standard normal numbers to states, a time `t` after the states `x`."""
        t, start = checked_query(self.density, t, x0=x, **self.conditioning(begin))
        return in_batches(images, self.density, t, noise, start)

    def log_likelihood(self, x: Float[Array, " d"], y: Array) -> Float[Array, ""]:
        """Return the log-likelihood of an observation at one state."""
        return jnp.asarray(self.observe(x, y), x.dtype)

    def log_likelihoods(self, x: Float[Array, "n d"], y: Array) -> Float[Array, " n"]:
        """Return the log-likelihood of an observation at each state."""
        return jax.vmap(lambda x: self.log_likelihood(x, y))(x)

    def mapped(self, method: str, x: Float[Array, "*n d"]) -> Float[Array, "*n d"]:
        """Apply a map of the domain to each component: `to_real`, `from_real` or `log_slope`."""
        return each(self.density.domain, method, x)
