"""Domains as NumPyro's constraints, with the maps that carry them to unconstrained numbers."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..sde.domains import AbstractDomain, Real
from .extras import extra

_constraints = extra("numpyro.distributions").constraints
_transforms = extra("numpyro.distributions.transforms")
_Constraint: Any = _constraints.Constraint
_Transform: Any = _transforms.Transform


def support_of(domain: tuple[AbstractDomain, ...]) -> Any:
    """The constraint of states whose components live in these domains."""
    whole = all(isinstance(part, Real) for part in domain)
    return _constraints.real_vector if whole else Inside(domain)


class Inside(_Constraint):
    """States that lie inside a domain."""

    event_dim = 1

    def __init__(self, domain: tuple[AbstractDomain, ...]):
        self.domain = domain

    def __call__(self, x: Float[Array, "*batch d"]) -> Bool[Array, "*batch"]:
        return jnp.all(_each(self.domain, "contains", jnp.asarray(x)), axis=-1)

    def __repr__(self) -> str:
        return " x ".join(map(str, self.domain))

    def feasible_like(self, prototype: Float[Array, "*batch d"]) -> Float[Array, "*batch d"]:
        """The centre of each component's domain."""
        centre = jnp.asarray([part.centre for part in self.domain], jnp.result_type(float))
        return jnp.broadcast_to(centre, jnp.shape(prototype))

    def eq(self, other: object, static: bool = False) -> bool:
        """Whether another constraint is the same."""
        return isinstance(other, Inside) and _same(self.domain, other.domain)

    def tree_flatten(self) -> tuple:
        """Nothing in it is an array."""
        return (), ((), {"domain": self.domain})


class Inwards(_Transform):
    """From all of the space into a domain, component by component."""

    sign = 1

    def __init__(self, inside: tuple[AbstractDomain, ...]):
        self.inside = inside

    @property
    def domain(self) -> Any:
        """What is mapped."""
        return _constraints.real_vector

    @property
    def codomain(self) -> Any:
        """Onto what."""
        return Inside(self.inside)

    def __call__(self, x: Float[Array, "*batch d"]) -> Float[Array, "*batch d"]:
        return _each(self.inside, "from_real", jnp.asarray(x))

    def _inverse(self, y: Float[Array, "*batch d"]) -> Float[Array, "*batch d"]:
        return _each(self.inside, "to_real", jnp.asarray(y))

    def log_abs_det_jacobian(
        self, x: Float[Array, "*batch d"], y: Float[Array, "*batch d"], intermediates: Any = None
    ) -> Float[Array, "*batch"]:
        """Logarithm of the volume that the map makes of a unit of it."""
        return -jnp.sum(_each(self.inside, "log_slope", jnp.asarray(y)), axis=-1)

    def eq(self, other: object, static: bool = False) -> bool:
        """Whether another map is the same."""
        return isinstance(other, Inwards) and _same(self.inside, other.inside)

    def tree_flatten(self) -> tuple:
        """Nothing in it is an array."""
        return (), ((), {"inside": self.inside})


_transforms.biject_to.register(Inside, lambda constraint: Inwards(constraint.domain))


def _each(domain: tuple[AbstractDomain, ...], method: str, x: Array) -> Array:
    columns = [getattr(part, method)(x[..., i]) for i, part in enumerate(domain)]
    return jnp.stack(columns, axis=-1)


def _same(one: tuple[AbstractDomain, ...], other: tuple[AbstractDomain, ...]) -> bool:
    return [part.describe() for part in one] == [part.describe() for part in other]
