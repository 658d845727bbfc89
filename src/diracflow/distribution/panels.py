r"""One-dimensional laws given by their density, integrated over Gauss--Legendre panels.

With the domain's map $\varphi$ onto the line, and $c$, $s$ mean and standard deviation of
$\varphi(X)$, the variable of integration is $u$ with $\varphi(x) = c + s\sinh u$. Tails are then
short whatever their kind. Panels divide the interval outside of which the density of $u$ is below
rounding. The left and the right integral are summed separately, so that both tails are accurate.
"""

from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .root_finding import NODE_WEIGHTS, NODES, increasing_root, without_gradient
from .weighted_points import WeightedPoints

if TYPE_CHECKING:
    from .abstract_distribution import AbstractDistribution

# Points that locate the law.
LOCATING = 256
# Panels of the distribution function.
PANELS = 48
# The interval of u is found on this grid, which ends 4000 standard deviations from the mean.
_GRID = np.linspace(-9.0, 9.0, 289)


class Panels(eqx.Module):
    """The variable of integration of a law, and the ends of its panels."""

    law: "AbstractDistribution"
    centre: Float[Array, "*batch"]
    scale: Float[Array, "*batch"]
    low: Float[Array, "*batch"]
    high: Float[Array, "*batch"]
    count: int = eqx.field(static=True)

    @property
    def width(self) -> Float[Array, "*batch"]:
        """The length of a panel."""
        return (self.high - self.low) / self.count

    def state(self, u: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        """Return the states at values of the variable."""
        lead = [1] * (u.ndim - self.centre.ndim)
        centre, scale = (a.reshape(*lead, *a.shape) for a in (self.centre, self.scale))
        return self.law.domain[0].from_real(centre + scale * jnp.sinh(u))

    def variable(self, x: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        """Return the values of the variable at states inside the domain."""
        lead = [1] * (x.ndim - self.centre.ndim)
        centre, scale = (a.reshape(*lead, *a.shape) for a in (self.centre, self.scale))
        return jnp.arcsinh((self.law.domain[0].to_real(x) - centre) / scale)

    def density(self, u: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        """Return the density of the variable."""
        return jnp.exp(self.log_density(u))

    def log_density(self, u: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        """Return the log-density of the variable, minus infinity where it is not defined."""
        x = self.state(u)
        lead = [1] * (u.ndim - self.scale.ndim)
        slope = self.law.domain[0].log_slope(x)
        change = jnp.log(jnp.cosh(u)) + jnp.log(self.scale).reshape(*lead, *self.scale.shape)
        value = self.law._log_probs(x[..., None]) + change - slope
        return jnp.where(jnp.isfinite(value), value, -jnp.inf)

    def nodes(self) -> tuple[Float[Array, "count k *batch"], Float[Array, "count k *batch"]]:
        """Return the nodes of all panels, and their weights times the density."""
        ones = [1] * self.low.ndim
        index = jnp.arange(self.count, dtype=self.low.dtype)[:, None]
        steps = (index + jnp.asarray(NODES, self.low.dtype)[None])[(..., *[None] * len(ones))]
        u = self.low[None, None] + self.width[None, None] * steps
        weights = jnp.asarray(NODE_WEIGHTS, u.dtype).reshape(1, -1, *ones)
        return u, weights * self.width[None, None] * self.density(u)

    def tails(
        self, u: Float[Array, "*batch"], masses: Float[Array, "count *batch"]
    ) -> tuple[Float[Array, "*batch"], Float[Array, "*batch"], Float[Array, "*batch"]]:
        """Return the mass below and above values of the variable, and the density there."""
        lead = [1] * (u.ndim - self.low.ndim)
        low, width = (a.reshape(*lead, *a.shape) for a in (self.low, self.width))
        panel = jnp.clip(jnp.floor(jax.lax.stop_gradient((u - low) / width)), 0, self.count - 1)
        left, right = low + width * panel, low + width * (panel + 1)
        number = jnp.arange(self.count, dtype=u.dtype).reshape(-1, *[1] * u.ndim)
        parts = masses.reshape(self.count, *lead, *self.low.shape)
        below = jnp.sum(jnp.where(number < panel[None], parts, 0.0), axis=0)
        above = jnp.sum(jnp.where(number > panel[None], parts, 0.0), axis=0)
        # All nodes in one call, because each call is compiled.
        rule = (jnp.asarray(a, u.dtype).reshape(-1, *[1] * u.ndim) for a in (NODES, NODE_WEIGHTS))
        nodes, weights = rule
        first, last = left[None] + (u - left)[None] * nodes, u[None] + (right - u)[None] * nodes
        heights = self.density(jnp.concatenate([first, last, u[None]]))
        parts = heights[:-1].reshape(2, *first.shape)
        below = below + (u - left) * jnp.sum(weights * parts[0], axis=0)
        return below, above + (right - u) * jnp.sum(weights * parts[1], axis=0), heights[-1]


def panels_of(law: "AbstractDistribution", count: int) -> Panels:
    """Return panels that cover a law. They do not depend on derivatives."""
    fixed = without_gradient(law)
    points = fixed._simulated(LOCATING, 0)
    [domain] = law.domain
    located = WeightedPoints(domain.to_real(points.x), points.weights)
    mean, covariance = located.moments()
    dtype = mean.dtype
    scale = jnp.sqrt(covariance[..., 0, 0])
    grid = jnp.asarray(_GRID, dtype).reshape(-1, *[1] * scale.ndim)
    zero = jnp.zeros_like(scale)
    located_law = Panels(fixed, mean[..., 0], scale, zero, zero, 1)
    heights = located_law.log_density(jnp.broadcast_to(grid, (len(grid), *scale.shape)))
    # The mass outside is then below rounding, in both tails.
    floor = jnp.max(heights, axis=0, keepdims=True) + 3 * jnp.log(jnp.finfo(dtype).eps)
    high = heights > floor
    step = _GRID[1] - _GRID[0]
    low_end = jnp.min(jnp.where(high, grid, jnp.inf), axis=0) - step
    high_end = jnp.max(jnp.where(high, grid, -jnp.inf), axis=0) + step
    ends = jax.lax.stop_gradient((mean[..., 0], scale, low_end, high_end))
    return Panels(law, *ends, count)


def panel_nodes(law: "AbstractDistribution", count: int) -> WeightedPoints:
    """Return the nodes of two rules with different panels."""
    first, sets = panels_of(law, count), []
    margin = first.width / 2
    ends = first.low - margin, first.high + margin
    for panels in (first, Panels(law, first.centre, first.scale, *ends, count)):
        flat = lambda a: a.reshape(-1, *a.shape[2:])
        u, weights = map(flat, panels.nodes())
        sets.append((panels.state(u)[..., None], weights / jnp.sum(weights, axis=0)[None]))
    x, weights = (jnp.stack(part) for part in zip(*sets, strict=True))
    return WeightedPoints(x, weights)


def panel_tails(
    law: "AbstractDistribution", x: Float[Array, "*batch"]
) -> tuple[Float[Array, "*batch"], Float[Array, "*batch"]]:
    """Return the probabilities below and above `x`."""
    [domain] = law.domain
    x = jnp.broadcast_to(x, np.broadcast_shapes(x.shape, law.batch_shape))
    panels = panels_of(law, PANELS)
    inside = domain.contains(x) & jnp.isfinite(x)
    u = panels.variable(jnp.where(inside, x, domain.centre))
    lead = [1] * (u.ndim - panels.low.ndim)
    low, high = (a.reshape(*lead, *a.shape) for a in (panels.low, panels.high))
    masses = jnp.sum(panels.nodes()[1], axis=1)
    total = jnp.sum(masses, axis=0).reshape(low.shape)
    below, above, _ = panels.tails(jnp.clip(u, low, high), masses)
    end = jnp.where(x <= domain.centre, 0.0, 1.0)
    return jnp.where(inside, below / total, end), jnp.where(inside, above / total, 1 - end)


def panel_quantile(
    law: "AbstractDistribution", q: Float[Array, "*batch"], upper: bool
) -> Float[Array, "*batch"]:
    """Return the state with probability `q` below it, or above it if `upper`."""
    q = jnp.broadcast_to(q, np.broadcast_shapes(q.shape, law.batch_shape))
    panels = panels_of(law, PANELS)
    masses = jnp.sum(panels.nodes()[1], axis=1)
    levels = (1 - q, q) if upper else (q, 1 - q)
    u = jax.lax.stop_gradient(_solve(*without_gradient((panels, masses, levels))))
    # One more Newton step carries the derivatives of the implicit function.
    value, slope = _residual(panels, masses, levels, u)
    slope = jax.lax.stop_gradient(slope)
    return panels.state(u - value / jnp.where(slope > 0, slope, jnp.inf))


@eqx.filter_jit
def _solve(panels: Panels, masses: Array, levels: tuple[Array, Array]) -> Float[Array, "*batch"]:
    shape = levels[0].shape
    lead = [1] * (len(shape) - panels.low.ndim)
    low, high = (a.reshape(*lead, *a.shape) for a in (panels.low, panels.high))
    ends = jnp.broadcast_to(low, shape), jnp.broadcast_to(high, shape)
    return increasing_root(lambda u: _residual(panels, masses, levels, u), *ends)


def _residual(
    panels: Panels, masses: Array, levels: tuple[Array, Array], u: Float[Array, "*batch"]
) -> tuple[Float[Array, "*batch"], Float[Array, "*batch"]]:
    """Return the probability below `u` minus the level, and its slope in `u`."""
    lead = [1] * (u.ndim - panels.low.ndim)
    total = jnp.sum(masses, axis=0).reshape(*lead, *panels.low.shape)
    below, above, height = panels.tails(u, masses)
    lower, rest = levels
    # The smaller of the two probabilities is compared, because of rounding.
    value = jnp.where(lower < 0.5, below / total - lower, rest - above / total)
    return value, height / total
