"""The law of some components of a state."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from ..sde.argument_checks import checked_count
from ..sde.delegation import delegated
from ..sde.domains import AbstractDomain, each
from .abstract_distribution import POINTS, AbstractDistribution, Traits
from .hidden_components import HiddenComponents
from .weighted_points import WeightedPoints

# Densities evaluated at once.
_CHUNK = 2**18


class Marginal(AbstractDistribution):
    """The law of some components, with the others integrated out.

    Draws and moments are those of the whole law. The density is an integral; `standard_error` is
    its relative error.
    """

    components: HiddenComponents

    @property
    def dim(self) -> int:
        return len(self.components.known)

    @property
    def domain(self) -> tuple[AbstractDomain, ...]:
        whole = self.components.law.domain
        return tuple(whole[i] for i in self.components.known)

    batch_shape = delegated("components.law.batch_shape")
    _scalar = delegated("components.law._scalar")

    @property
    def _traits(self) -> Traits:
        return Traits(integrable=self.components.by_quadrature)

    def _origin(self, component: int) -> tuple[AbstractDistribution, int]:
        return self.components.law._origin(self.components.known[component])

    def standard_error(self, x: Float[ArrayLike, "*batch d"]) -> Float[Array, "*batch"]:
        """Return the relative standard error of the density at `x`.

        For two hidden components or fewer it is half the difference between two quadratures.
        """
        return _log_integrals(self, self._points(x))[1]

    def marginal(self, components: int | Sequence[int]) -> AbstractDistribution:
        kept = [self.components.known[i] for i in checked_components(components, self.dim)]
        return marginal_of(self.components.law, kept)

    def _log_probs(self, x: Float[Array, "*batch d"]) -> Float[Array, "*batch"]:
        return _log_integrals(self, x)[0]

    def _simulated(self, points: int, key: Any) -> WeightedPoints:
        whole = self.components.law._simulated(points, key)
        return WeightedPoints(whole.x[..., list(self.components.known)], whole.weights)

    def _draw(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "*shape d"]:
        return self.components.law._draw(key, shape)[..., list(self.components.known)]


def marginal_of(law: AbstractDistribution, components: int | Sequence[int]) -> Marginal:
    """Return the law of some components of `law`."""
    return Marginal(HiddenComponents(law, checked_components(components, law.dim)))


def checked_components(components: Any, dim: int) -> tuple[int, ...]:
    """Return the indices of components, after checking that they exist and differ."""
    listed = [components] if np.ndim(components) == 0 else list(components)
    chosen = tuple(checked_count("components", i, least=-dim) for i in listed)
    missing = [i for i in chosen if i >= dim]
    if missing or not chosen:
        raise ValueError(f"Components are counted from 0 to {dim - 1}; got {components!r}.")
    chosen = tuple(i % dim for i in chosen)
    if len(set(chosen)) < len(chosen):
        raise ValueError(f"Components must not repeat; got {components!r}.")
    return chosen


@eqx.filter_jit
def _log_integrals(law: Marginal, x: Float[Array, "*batch d"]) -> tuple[Array, Array]:
    """Return the log-density and its relative standard error."""
    batch, hidden = law.batch_shape, law.components
    noise = hidden.noise(POINTS, 0)
    full = np.broadcast_shapes(x.shape[:-1], batch)
    rows = jnp.broadcast_to(x, (*full, x.shape[-1]))
    inner = full[len(full) - len(batch) :]
    rows = rows.reshape(-1, *inner, x.shape[-1])

    def one(known: Float[Array, "*batch d"]) -> tuple[Array, Array]:
        inside = jnp.all(each(law.domain, "contains", known) & jnp.isfinite(known), axis=-1)
        centre = jnp.asarray([part.centre for part in law.domain], known.dtype)
        known = jnp.where(inside[..., None], known, jnp.broadcast_to(centre, known.shape))
        value, error = hidden.nodes(known, noise).log_integral()
        return jnp.where(inside, value, -jnp.inf), jnp.where(inside, error, 0.0)

    together = max(1, _CHUNK // (hidden.rows(POINTS) * max(1, int(np.prod(inner, dtype=int)))))
    value, error = jax.lax.map(one, rows, batch_size=together)
    return value.reshape(full), error.reshape(full)
