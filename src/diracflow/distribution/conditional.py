"""The law of some components of a state given the others."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from ..sde.argument_checks import real_numbers
from ..sde.domains import AbstractDomain
from .abstract_distribution import POINTS, AbstractDistribution, Traits
from .hidden_components import HiddenComponents
from .marginal import checked_components
from .weighted_points import WeightedPoints

# Proposals for each draw of several components, and the least number of all proposals.
_PROPOSALS, _LEAST = 8, 4096
# Refused if the relative standard error of the normalising integral is larger.
_LARGEST_ERROR = 0.1


class Conditional(AbstractDistribution):
    """The law of the other components given the values of some.

    Its density is that of the whole law divided by `exp(log_normaliser)`, the marginal density of
    the given values. One component is drawn exactly, through its quantiles. Several are drawn by
    importance resampling, so draws may repeat.
    """

    components: HiddenComponents
    values: Float[Array, "*batch k"]
    log_normaliser: Float[Array, "*batch"]

    @property
    def dim(self) -> int:
        return len(self.components.hidden)

    @property
    def domain(self) -> tuple[AbstractDomain, ...]:
        whole = self.components.law.domain
        return tuple(whole[i] for i in self.components.hidden)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return self.values.shape[:-1]

    @property
    def _traits(self) -> Traits:
        return Traits(cheap=self.components.law._traits.cheap)

    def _log_probs(self, x: Float[Array, "*batch d"]) -> Float[Array, "*batch"]:
        whole = self.components.joined(self.values, x)
        value = self.components.law._log_probs(whole)
        lead = [1] * (value.ndim - self.log_normaliser.ndim)
        return value - self.log_normaliser.reshape(*lead, *self.log_normaliser.shape)

    def _simulated(self, points: int, key: Any) -> WeightedPoints:
        nodes = self.components.nodes(self.values, self.components.noise(points, key))
        return WeightedPoints(nodes.h, jax.nn.softmax(nodes.log_weights, axis=1))

    def _draw(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "*shape d"]:
        sizes = (*shape, *self.batch_shape)
        if self.dim == 1:
            tiny = jnp.finfo(self.values.dtype).tiny
            return self._quantile(jr.uniform(key, sizes, minval=tiny), upper=False)
        noise_key, pick_key = jr.split(key)
        count = max(_LEAST, _PROPOSALS * int(np.prod(shape, dtype=int)))
        noise = jr.normal(noise_key, (1, count, self.dim))
        nodes = self.components.nodes(self.values, noise)
        log_weights = jnp.moveaxis(nodes.log_weights[0], 0, -1)
        picked = jr.categorical(pick_key, log_weights, shape=sizes)
        table = jnp.moveaxis(nodes.h[0], 0, -2)  # (*batch, count, d)
        lead = [1] * len(shape)
        table = jnp.broadcast_to(table.reshape(*lead, *table.shape), (*sizes, *table.shape[-2:]))
        return jnp.take_along_axis(table, picked[..., None, None], axis=-2)[..., 0, :]


def conditional_of(law: AbstractDistribution, given: Mapping[int, ArrayLike]) -> Conditional:
    """Return the law of the other components of `law`, given the values of some."""
    if not isinstance(given, Mapping) or not given:
        raise ValueError(
            "`given` must map components to values, as in `{1: 0.3}`; got "
            f"{type(given).__name__ if given else given!r}."
        )
    known = checked_components(list(given), law.dim)
    if len(known) == law.dim:
        raise ValueError(f"All {law.dim} components are given; none is left for a law.")
    columns = [real_numbers(f"given[{i}]", value) for i, value in given.items()]
    for index, column in zip(known, columns, strict=True):
        _require_inside(index, column, law.domain[index])
    try:
        batch = np.broadcast_shapes(law.batch_shape, *(c.shape for c in columns))
    except ValueError:
        shapes = [c.shape for c in columns]
        raise ValueError(
            f"Given values must broadcast against the batch {law.batch_shape}; got {shapes}."
        ) from None
    if len(batch) > len(law.batch_shape):
        raise ValueError(
            f"Given values must have at most the {len(law.batch_shape)} axes of the law's batch; "
            f"got shape {batch}. Use `jax.vmap`, or a law at a batch of starts."
        )
    values = jnp.stack([jnp.broadcast_to(c, batch) for c in columns], axis=-1)
    components = HiddenComponents(law, known)
    nodes = components.nodes(values, components.noise(POINTS, 0))
    log_normaliser, error = nodes.log_integral()
    _require_mass(law, dict(zip(known, columns, strict=True)), log_normaliser, error)
    return Conditional(components, values, log_normaliser)


def _require_inside(index: int, value: Array, domain: AbstractDomain) -> None:
    if isinstance(value, jax.core.Tracer):
        return
    known = np.asarray(value)
    bad = ~(np.asarray(domain.contains(known)) & np.isfinite(known))
    if np.any(bad):
        raise ValueError(
            f"The value of component {index} must lie inside its domain {domain}; got "
            f"{known[bad].ravel()[0]:g}."
        )


def _require_mass(
    law: AbstractDistribution, given: dict[int, Array], log_normaliser: Array, error: Array
) -> None:
    if isinstance(log_normaliser, jax.core.Tracer):
        return
    good = np.isfinite(log_normaliser) & (np.asarray(error) <= _LARGEST_ERROR)
    if not np.all(good):
        shown = ", ".join(f"{i}: {np.asarray(value).tolist()}" for i, value in given.items())
        raise ValueError(
            f"The law given {{{shown}}} cannot be computed: the relative standard error of its "
            f"normalising integral is {float(np.max(error)):.2g}, above {_LARGEST_ERROR:g}. Give "
            "values nearer to the bulk of the law, or more components, so that at most two "
            "remain and quadrature is used."
        )
