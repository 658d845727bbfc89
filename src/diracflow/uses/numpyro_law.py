"""Transition densities as NumPyro distributions, for models of one's own.

Reached as `diracflow.numpyro`; needs the extra `infer`.
"""

from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from ..sde.argument_checks import checked_key, checked_point, checked_shape
from ..sde.parameters import Params
from ..transition.programs import images, log_probs
from ..transition.transition_density import (
    AbstractTransitionDensity,
    checked_query,
    require_density,
)
from .extras import extra
from .support import support_of

_Distribution: Any = extra("numpyro.distributions").Distribution
_constraints = extra("numpyro.distributions").constraints


class _Held:
    """A density compared by identity: what JAX keeps beside arrays must have a hash."""

    def __init__(self, density: AbstractTransitionDensity):
        self.density = density

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held) and self.density is other.density

    def __hash__(self) -> int:
        return id(self.density)


class Transition(_Distribution):
    """The law of a state, a time `t` after the start at `x0`.

    **Arguments:**

    - `density`: a transition density, learned or exact. It is held fixed.
    - `t`, `x0`, `params`, `start_time`: as in its queries. Their broadcast leading axes are
        the batch shape; the state is the event.

    >>> import diracflow as df
    >>> law = df.numpyro.Transition(df.models.benes().exact, [0.1, 0.2], [0.0, 0.5])
    >>> law.batch_shape, law.event_shape
    ((2,), (2,))
    """

    pytree_data_fields = ("t", "start")
    pytree_aux_fields = ("held",)

    def __init__(
        self,
        density: AbstractTransitionDensity,
        t: Float[ArrayLike, "*batch"],
        x0: Float[ArrayLike, "*batch d"],
        params: Params | None = None,
        *,
        start_time: Float[ArrayLike, "*batch"] | None = None,
        validate_args: bool | None = None,
    ):
        require_density(density)
        time, start = checked_query(density, t, params, start_time=start_time, x0=x0)
        batch = np.broadcast_shapes(time.shape, start.shape[:-1])
        # Every field has the whole batch shape, so that `vmap` over the law takes them apart alike.
        self.t = jnp.broadcast_to(time, batch)
        self.start = jnp.broadcast_to(start, (*batch, start.shape[-1]))  # parameters included
        self.held = _Held(density)
        super().__init__(batch, (density.dim,), validate_args=validate_args)

    @_constraints.dependent_property(is_discrete=False, event_dim=1)
    def support(self) -> Any:
        """The states that can be: all, or those inside the domain of the SDE."""
        return support_of(self.held.density.domain)

    def log_prob(self, value: Float[Array, "*batch d"]) -> Float[Array, "*batch"]:
        """Log-density at `value`."""
        # Times were checked when the law was made; a check here would run in a sampler's loop.
        density = self.held.density._restricted(self.t)
        return log_probs(density, self.t, checked_point("value", value, density.dim), self.start)

    def sample(
        self, key: PRNGKeyArray, sample_shape: tuple[int, ...] = ()
    ) -> Float[Array, "*shape d"]:
        """Independent draws, of shape `sample_shape + batch_shape + event_shape`."""
        density = self.held.density
        sizes = (*checked_shape(sample_shape), *self.t.shape, density.noise_dim)
        noise = jr.normal(checked_key(key), sizes)
        return images(density, self.t, noise, self.start)
