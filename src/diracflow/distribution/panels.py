r"""One-dimensional laws given by their density, integrated over Gauss--Legendre panels.

With the domain's map $\varphi$ onto the line, and $c$, $s$ mean and standard deviation of
$\varphi(X)$, the variable of integration is $u$ with $\varphi(x) = c + s\sinh u$. Tails are then
short whatever their kind. Panels divide the interval outside of which the density of $u$ is below
rounding. The left and the right integral are summed separately, so that both tails are accurate.
"""

from typing import TYPE_CHECKING, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..sde.domains import AbstractDomain
from .root_finding import NODE_WEIGHTS, NODES, panel_points, without_gradient
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
        return _placed(self.law.domain[0], self.centre, self.scale, u)[0]

    def variable(self, x: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        """Return the values of the variable at states inside the domain, within the panels."""
        centre, scale, *ends = _leading(x.ndim, self.centre, self.scale, self.low, self.high)
        return jnp.clip(jnp.arcsinh((self.law.domain[0].to_real(x) - centre) / scale), *ends)

    def log_density(self, u: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        """Return the log-density of the variable, minus infinity where it is not defined."""
        x, change = _placed(self.law.domain[0], self.centre, self.scale, u)
        value = self.law._log_probs(x[..., None]) + change
        return jnp.where(jnp.isfinite(value), value, -jnp.inf)

    def nodes(self) -> tuple[Float[Array, "n *batch"], Float[Array, "n *batch"]]:
        """Return the nodes of all panels, and their weights times the density."""
        u, weights = panel_points(self.low, self.width, self.count)
        return u, weights * jnp.exp(self.log_density(u))


class PanelTails(NamedTuple):
    """The distribution function in the variable of integration."""

    panels: Panels
    masses: Float[Array, "count *batch"]

    def tails(self, u: Float[Array, "*batch"]) -> tuple[Array, Array, Array]:
        """Return the probabilities below and above values of the variable, and its density."""
        panels = self.panels
        points, panel = _tail_points(panels.low, panels.width, panels.count, u)
        heights = panels.log_density(points)
        [total] = _leading(u.ndim, jnp.sum(self.masses, axis=0))
        found = _tail_sums(panels.low, panels.width, self.masses, u, panel, heights)
        below, above, height = (part / total for part in found)
        return below, above, height

    def bracket(self, levels: tuple[Array, Array]) -> tuple[Array, ...]:
        """Return the ends of all panels."""
        shape = levels[0].shape
        ends = _leading(len(shape), self.panels.low, self.panels.high)
        return tuple(jnp.broadcast_to(end, shape) for end in ends)


# The functions below are compiled one by one. The density is evaluated between them by a program
# that is compiled once, since its compilation may take seconds.


def _leading(ndim: int, *arrays: Array) -> list[Array]:
    return [a.reshape(*[1] * (ndim - a.ndim), *a.shape) for a in arrays]


@eqx.filter_jit
def _placed(domain: AbstractDomain, centre: Array, scale: Array, u: Array) -> tuple[Array, Array]:
    """Return states and the logarithm of their derivative in the variable."""
    centre, scale = _leading(u.ndim, centre, scale)
    x = domain.from_real(centre + scale * jnp.sinh(u))
    return x, jnp.log(jnp.cosh(u)) + jnp.log(scale) - domain.log_slope(x)


@eqx.filter_jit
def _tail_points(low: Array, width: Array, count: int, u: Array) -> tuple[Array, Array]:
    """Return the nodes between a value and both ends of its panel, the value, and the panel."""
    low, width = _leading(u.ndim, low, width)
    panel = jnp.clip(jnp.floor(jax.lax.stop_gradient((u - low) / width)), 0, count - 1)
    left, right = low + width * panel, low + width * (panel + 1)
    nodes = jnp.asarray(NODES, u.dtype).reshape(-1, *[1] * u.ndim)
    first, last = left[None] + (u - left)[None] * nodes, u[None] + (right - u)[None] * nodes
    return jnp.concatenate([first, last, u[None]]), panel


@eqx.filter_jit
def _tail_sums(
    low: Array, width: Array, masses: Array, u: Array, panel: Array, log_density: Array
) -> tuple[Array, Array, Array]:
    parts = masses.reshape(len(masses), *[1] * (u.ndim - low.ndim), *low.shape)
    low, width = _leading(u.ndim, low, width)
    left, right = low + width * panel, low + width * (panel + 1)
    number = jnp.arange(len(masses), dtype=u.dtype).reshape(-1, *[1] * u.ndim)
    below = jnp.sum(jnp.where(number < panel[None], parts, 0.0), axis=0)
    above = jnp.sum(jnp.where(number > panel[None], parts, 0.0), axis=0)
    heights = jnp.exp(log_density)
    weights = jnp.asarray(NODE_WEIGHTS, u.dtype).reshape(1, -1, *[1] * u.ndim)
    sums = jnp.sum(weights * heights[:-1].reshape(2, len(NODES), *u.shape), axis=1)
    return below + (u - left) * sums[0], above + (right - u) * sums[1], heights[-1]


@eqx.filter_jit
def _ends(grid: Array, heights: Array) -> tuple[Array, Array]:
    """Return the interval outside of which the mass is below rounding, in both tails."""
    floor = jnp.max(heights, axis=0, keepdims=True) + 3 * jnp.log(jnp.finfo(grid.dtype).eps)
    step = _GRID[1] - _GRID[0]
    low = jnp.min(jnp.where(heights > floor, grid, jnp.inf), axis=0) - step
    return low, jnp.max(jnp.where(heights > floor, grid, -jnp.inf), axis=0) + step


def panels_of(law: "AbstractDistribution", count: int) -> Panels:
    """Return panels that cover a law. They do not depend on derivatives."""
    fixed = without_gradient(law)
    x, weights = fixed._simulated(LOCATING, 0)
    mean, covariance = WeightedPoints(law.domain[0].to_real(x), weights).moments()
    mean, scale = mean[..., 0], jnp.sqrt(covariance[..., 0, 0])
    grid = jnp.asarray(_GRID, scale.dtype).reshape(-1, *[1] * scale.ndim)
    grid = jnp.broadcast_to(grid, (len(grid), *scale.shape))
    heights = Panels(fixed, mean, scale, mean, scale, 1).log_density(grid)
    ends = jax.lax.stop_gradient((mean, scale, *_ends(grid, heights)))
    return Panels(law, *ends, count)


def panel_nodes(law: "AbstractDistribution", count: int) -> WeightedPoints:
    """Return the nodes of two rules with different panels."""
    first, sets = panels_of(law, count), []
    margin = first.width / 2
    ends = first.low - margin, first.high + margin
    for panels in (first, Panels(law, first.centre, first.scale, *ends, count)):
        u, weights = panels.nodes()
        sets.append((panels.state(u)[..., None], weights / jnp.sum(weights, axis=0)[None]))
    x, weights = (jnp.stack(part) for part in zip(*sets, strict=True))
    return WeightedPoints(x, weights)


def tails_of(law: "AbstractDistribution", count: int) -> PanelTails:
    """Return the distribution function of a law, summed over panels."""
    panels = panels_of(law, count)
    weights = panels.nodes()[1]
    return PanelTails(panels, jnp.sum(weights.reshape(count, -1, *weights.shape[1:]), axis=1))
