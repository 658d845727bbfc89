"""Transition densities as NumPyro distributions, for use in NumPyro models.

This module is available as `diracflow.numpyro`. It needs the extra `infer`.
"""

from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, PRNGKeyArray

from ..sde.argument_checks import checked_key, checked_point, checked_shape
from ..sde.domains import AbstractDomain, Real, each
from ..sde.parameters import Params
from ..transition.frozen import Frozen
from ..transition.programs import images, log_probs
from ..transition.transition_density import (
    AbstractTransitionDensity,
    checked_query,
    require_density,
)
from .extras import extra

_constraints = extra("numpyro.distributions").constraints
_transforms = extra("numpyro.distributions.transforms")
_Distribution: Any = extra("numpyro.distributions").Distribution
_Constraint: Any = _constraints.Constraint
_Transform: Any = _transforms.Transform


class _Held:
    """A density compared by identity, because JAX requires that static data can be hashed."""

    def __init__(self, density: AbstractTransitionDensity):
        self.density = density

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held) and self.density is other.density

    def __hash__(self) -> int:
        return id(self.density)


class Transition(_Distribution):
    """The law of the state a time `t` after the start at `x0`.

    **Arguments:**

    - `density`: a transition density, learned or exact. It is held fixed.
    - `t`, `x0`, `params`, `start_time`: as in the density's queries. Their broadcast leading axes
        are the batch shape; the state is the event.
    - `validate_args`: as in NumPyro's distributions.

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
        # Every field has the full batch shape, so that `vmap` over the law splits all of them.
        self.t = jnp.broadcast_to(time, batch)
        self.start = jnp.broadcast_to(start, (*batch, start.shape[-1]))  # with parameters
        self.held = _Held(density)
        super().__init__(batch, (density.dim,), validate_args=validate_args)

    @_constraints.dependent_property(is_discrete=False, event_dim=1)
    def support(self) -> Any:
        """Constraint that the state lies inside the domain of the SDE."""
        return support_of(self.held.density.domain)

    @property
    def mean(self) -> Float[Array, "*batch d"]:
        """Mean of the state."""
        return self._law().mean()

    @property
    def variance(self) -> Float[Array, "*batch d"]:
        """Variance of each component."""
        return self._law().var()

    def cdf(self, value: Float[Array, "*batch d"]) -> Float[Array, "*batch"]:
        """Return the distribution function, of each component if there are several."""
        return self._law().cdf(value)

    def icdf(self, q: Float[Array, "*batch"]) -> Float[Array, "*batch d"]:
        """Return the quantile of each component."""
        return self._law().ppf(q)

    def entropy(self) -> Float[Array, "*batch"]:
        """Return the differential entropy in nats."""
        return self._law().entropy()

    def _law(self) -> Frozen:
        return Frozen(self.held.density._restricted(self.t), self.t, self.start)

    def log_prob(self, value: Float[Array, "*batch d"]) -> Float[Array, "*batch"]:
        """Return the log-density at `value`."""
        # Times were checked in `__init__`; a check here would run in the loop of a sampler.
        density = self.held.density._restricted(self.t)
        return log_probs(density, self.t, checked_point("value", value, density.dim), self.start)

    def sample(
        self, key: PRNGKeyArray, sample_shape: tuple[int, ...] = ()
    ) -> Float[Array, "*shape d"]:
        """Return independent draws of shape `sample_shape + batch_shape + event_shape`."""
        density = self.held.density
        sizes = (*checked_shape(sample_shape), *self.t.shape, density.noise_dim)
        noise = jr.normal(checked_key(key), sizes)
        return images(density, self.t, noise, self.start)


def support_of(domain: tuple[AbstractDomain, ...]) -> Any:
    """Return the constraint of states whose components lie in the given domains."""
    whole = all(isinstance(part, Real) for part in domain)
    return _constraints.real_vector if whole else Inside(domain)


class _OnDomain:
    """Equality and flattening, shared by the constraint and its transform."""

    def __init__(self, parts: tuple[AbstractDomain, ...]):
        self.parts = parts

    def eq(self, other: object, static: bool = False) -> bool:
        """Return `True` if `other` is of the same type with the same domain."""
        described = lambda item: [part.describe() for part in item.parts]
        return type(other) is type(self) and described(self) == described(other)

    def tree_flatten(self) -> tuple:
        """Return no arrays, and the domain as static data."""
        return (), ((), {"parts": self.parts})


class Inside(_OnDomain, _Constraint):
    """Constraint that each component of the state lies inside its domain."""

    event_dim = 1

    def __call__(self, x: Float[Array, "*batch d"]) -> Bool[Array, "*batch"]:
        return jnp.all(each(self.parts, "contains", jnp.asarray(x)), axis=-1)

    def __repr__(self) -> str:
        return " x ".join(map(str, self.parts))

    def feasible_like(self, prototype: Float[Array, "*batch d"]) -> Float[Array, "*batch d"]:
        """Return the centre of each component's domain."""
        centre = jnp.asarray([part.centre for part in self.parts], jnp.result_type(float))
        return jnp.broadcast_to(centre, jnp.shape(prototype))


class IntoDomain(_OnDomain, _Transform):
    """Bijection from unconstrained vectors into a domain, component by component."""

    sign = 1
    domain = _constraints.real_vector

    @property
    def codomain(self) -> Any:
        """Constraint that the image satisfies."""
        return Inside(self.parts)

    def __call__(self, x: Float[Array, "*batch d"]) -> Float[Array, "*batch d"]:
        return each(self.parts, "from_real", jnp.asarray(x))

    def _inverse(self, y: Float[Array, "*batch d"]) -> Float[Array, "*batch d"]:
        return each(self.parts, "to_real", jnp.asarray(y))

    def log_abs_det_jacobian(
        self, x: Float[Array, "*batch d"], y: Float[Array, "*batch d"], intermediates: Any = None
    ) -> Float[Array, "*batch"]:
        """Return the logarithm of the Jacobian determinant at `x`, whose image is `y`."""
        return -jnp.sum(each(self.parts, "log_slope", jnp.asarray(y)), axis=-1)


_transforms.biject_to.register(Inside, lambda constraint: IntoDomain(constraint.parts))
