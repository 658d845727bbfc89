"""Distribution functions of each component of a law.

- Smooth maps of normal noise: lines of noise, see `lines`.
- Up to three components of a cheap density: the marginal density is integrated over panels.
- Otherwise: the fraction of weighted points.
"""

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..sde.domains import AbstractDomain
from .lines import Lines, lines_of
from .panels import PANELS, panel_nodes, tails_of
from .root_finding import quantile
from .weighted_points import Estimate, WeightedPoints

if TYPE_CHECKING:
    from .abstract_distribution import AbstractDistribution

# Most components of which all but one are integrated by quadrature.
_QUADRATURE = 3
# Weighted points, where there is no other method, and points that they are compared with at once.
_POINTS, _TOGETHER = 2**15, 16


class Integrated(NamedTuple):
    """A law of one component whose density is integrated over panels."""

    law: "AbstractDistribution"

    def estimate(self, x: Float[Array, "*batch"], error: bool) -> tuple[Estimate, Estimate]:
        """Return the probabilities below and above `x` inside, with standard errors if `error`."""
        tails = self._tails(x, PANELS)
        if not error:
            below, above = (Estimate(a, jnp.zeros_like(a)) for a in tails)
            return below, above
        inner, others = self._density_error(), self._tails(x, PANELS * 3 // 4)
        below, above = (
            Estimate(a, jnp.abs(a - b) + inner * jnp.minimum(a, 1 - a))
            for a, b in zip(tails, others, strict=True)
        )
        return below, above

    def _tails(self, x: Float[Array, "*batch"], count: int) -> tuple[Array, Array]:
        """Return the probabilities below and above `x`, summed over panels."""
        found = tails_of(self.law, count)
        below, above, _ = found.tails(found.panels.variable(x))
        return below, above

    def _density_error(self) -> Float[Array, "*batch"]:
        """Return the mean relative error of the density, if the density is itself an integral."""
        error = getattr(self.law, "standard_error", None)
        if error is None:
            return jnp.zeros(self.law.batch_shape)
        nodes = panel_nodes(self.law, PANELS // 2)
        return nodes.mean(error(nodes.x)).value

    def quantile(self, q: Float[Array, "*batch"], upper: bool) -> Float[Array, "*batch"]:
        found = tails_of(self.law, PANELS)
        q = jnp.broadcast_to(q, np.broadcast_shapes(q.shape, self.law.batch_shape))
        return found.panels.state(quantile(found, q, upper))


class Counted(NamedTuple):
    """Weighted points of one component."""

    points: WeightedPoints  # without an axis of components

    def estimate(self, x: Float[Array, "*batch"], error: bool) -> tuple[Estimate, Estimate]:
        batch = x.shape[x.ndim + 2 - self.points.x.ndim :]
        below = lambda row: self.points.mean((self.points.x <= row[None, None]).astype(x.dtype))
        found = jax.lax.map(below, x.reshape(-1, *batch), batch_size=_TOGETHER)
        value, spread = (a.reshape(x.shape) for a in found)
        return Estimate(value, spread), Estimate(1 - value, spread)

    def quantile(self, q: Float[Array, "*batch"], upper: bool) -> Float[Array, "*batch"]:
        sets, count, *batch = self.points.x.shape
        full = np.broadcast_shapes(q.shape, tuple(batch))
        tables = (jnp.broadcast_to(a, self.points.x.shape) for a in self.points)
        x, weights = (table.reshape(sets * count, -1).T for table in tables)
        levels = jnp.broadcast_to(1 - q if upper else q, full).reshape(-1, len(x)).T
        return jax.vmap(_interpolated)(x, weights / sets, levels).T.reshape(full)


def _interpolated(x: Float[Array, " n"], weights: Array, q: Array) -> Float[Array, " q"]:
    """Return quantiles of weighted points, interpolated between them."""
    order = jnp.argsort(x)
    cumulated = jnp.cumsum(weights[order]) - weights[order] / 2  # in the middle of each weight
    return jnp.interp(q, cumulated, x[order])


# The distribution function of one component, and its inverse.
Component = Integrated | Counted | Lines


def components_of(law: "AbstractDistribution") -> list[Component]:
    """Return the distribution functions of all components."""
    if law.dim == 1 and law._traits.integrable:
        return [Integrated(law)]
    origins = [law._origin(index) for index in range(law.dim)]
    whole = origins[0][0]
    if whole._traits.smooth:
        return [lines_of(whole, index) for _, index in origins]
    if whole._traits.cheap and whole.dim <= _QUADRATURE:
        return [Integrated(whole.marginal(index)) for _, index in origins]
    x, weights = whole._simulated(_POINTS, 0)
    return [Counted(WeightedPoints(x[..., i], weights)) for _, i in origins]


def _estimate(
    part: Component, domain: AbstractDomain, x: Float[Array, "*batch"], error: bool
) -> tuple[Estimate, Estimate]:
    """Return the estimates of one component, which are exact outside the domain."""
    inside, end = domain.contains(x) & jnp.isfinite(x), jnp.where(x <= domain.centre, 0.0, 1.0)
    tails = part.estimate(jnp.where(inside, x, domain.centre), error)
    below, above = (
        Estimate(jnp.where(inside, tail.value, value), jnp.where(inside, tail.stderr, 0.0))
        for tail, value in zip(tails, (end, 1 - end), strict=True)
    )
    return below, above


def tail_estimates(
    law: "AbstractDistribution", x: Float[Array, "*batch d"], error: bool = True
) -> tuple[Estimate, Estimate]:
    """Return the probabilities below and above each component of `x`; no axis if there is one."""
    x = jnp.broadcast_to(x, (*np.broadcast_shapes(x.shape[:-1], law.batch_shape), law.dim))
    parts = zip(components_of(law), law.domain, jnp.moveaxis(x, -1, 0), strict=True)
    found = [_estimate(part, domain, column, error) for part, domain, column in parts]
    if law.dim == 1:
        return found[0]
    below, above = (
        Estimate(*(jnp.stack(column, axis=-1) for column in zip(*tail, strict=True)))
        for tail in zip(*found, strict=True)
    )
    return below, above
