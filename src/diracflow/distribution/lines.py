r"""Distribution functions of components of laws that are smooth maps of normal noise.

The noise is $z\,v + w$ with a unit vector $v$ and $w$ orthogonal to it. Along the line of each
$w$, the probability that a component $T_i(zv + w)$ is below a level follows from the points where
it crosses the level, by the normal distribution function. Only the mean over $w$ is quasi-random,
of a smooth function; if $w$ has one component, it is a trapezoidal rule. With $v$ the mean gradient
of $T_i$, the component hardly depends on $w$: for a linear map it does not, and the result is
exact.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from ..sde.domains import AbstractDomain
from .root_finding import excess, increasing_root, quantile
from .weighted_points import Estimate, normal_sets

if TYPE_CHECKING:
    from .abstract_distribution import AbstractDistribution

# Number of lines, and of points that locate their direction.
_LINES = 4096
# Nodes of a line. Beyond its ends the probability is 1e-15.
_NODES = 2 * np.sinh(np.linspace(-np.arcsinh(4.0), np.arcsinh(4.0), 35))
# Neighbouring nodes from which the slope at a node is computed.
_STENCIL = 7
# One of so many lines is used for the first guess of a quantile.
_COARSE = 16
# Smallest slope within a cell: at a turning point the density of a line is infinite.
_FLAT = 1e-12


class Tails(NamedTuple):
    """Probabilities below and above levels, and the density there; one for each set of lines."""

    below: Float[Array, "sets *batch"]
    above: Float[Array, "sets *batch"]
    height: Float[Array, "sets *batch"]


class Lines(eqx.Module):
    """Values of one component, mapped to the real line, at the nodes of all lines."""

    domain: AbstractDomain
    values: Float[Array, "nodes sets n *batch"]
    weights: Float[Array, "sets n"]  # of lines

    def estimate(self, x: Float[Array, "*batch"], error: bool = True) -> tuple[Estimate, Estimate]:
        """Return the probabilities below and above `x`, with standard errors in any case."""
        below, above, _ = _tails(self, self.domain.to_real(x))
        return _over_sets(below), _over_sets(above)

    def quantile(self, q: Float[Array, "*batch"], upper: bool) -> Float[Array, "*batch"]:
        """Return the state with probability `q` below it, or above it if `upper`."""
        q = jnp.broadcast_to(q, np.broadcast_shapes(q.shape, self.values.shape[3:]))
        return self.domain.from_real(quantile(self, q, upper))

    def tails(self, level: Float[Array, "*batch"]) -> tuple[Array, Array, Array]:
        """Return the probabilities below and above levels on the real line, and the density."""
        below, above, height = (jnp.mean(a, axis=0) for a in _tails(self, level))
        return below, above, height

    def bracket(self, levels: tuple[Array, Array]) -> tuple[Array, ...]:
        """Return ends of the quantiles, and those of a few of the lines as a first guess."""
        full = levels[0].shape
        ends = [jnp.broadcast_to(f(self.values, (0, 1, 2)), full) for f in (jnp.min, jnp.max)]
        few = slice(None, None, _COARSE)
        coarse = Lines(self.domain, self.values[:, :, few], _COARSE * self.weights[:, few])
        return *ends, increasing_root(lambda y: excess(coarse, levels, y), *ends)


def lines_of(law: "AbstractDistribution", component: int) -> Lines:
    """Return the lines of one component."""
    domain = law.domain[component]
    ones = [1] * len(law.batch_shape)
    spread = lambda z: jnp.asarray(z.reshape(*z.shape[:-1], *ones, z.shape[-1]))
    noise = spread(normal_sets(_LINES, law.noise_dim, 0))
    values = domain.to_real(law._images(noise)[..., component])
    jumps = law._traits.jumps
    axes = jax.lax.stop_gradient(_axes(noise[..., jumps:], values))
    others, weights = _others(law.noise_dim - 1, jumps)
    states = law._images(_along(axes, spread(others), jumps))
    return Lines(domain, domain.to_real(states[..., component]), jnp.asarray(weights))


def _others(dim: int, jumps: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the noise that differs between lines, in several sets, and the weights of lines."""
    if dim > 1 or jumps:
        points = normal_sets(_LINES, dim, 1)
        return points, np.full(points.shape[:2], 1 / points.shape[1], points.dtype)
    points, step = np.linspace(_NODES[0], _NODES[-1], _LINES // 2, retstep=True)
    sets = np.stack([points, points + step / 2])
    weights = np.exp(-0.5 * sets**2)
    kind = jnp.result_type(float)
    return sets[..., None].astype(kind), (weights / weights.sum(1, keepdims=True)).astype(kind)


@eqx.filter_jit
def _axes(noise: Array, values: Array) -> Float[Array, "*batch m m"]:
    """Return orthonormal columns: the mean gradient, and axes of the mean second derivative.

    Both means follow from values alone, by Stein's lemma. The axes are in the order of their
    importance, because the first columns of quasi-random points are the most even.
    """
    values = (values - jnp.mean(values, axis=(0, 1), keepdims=True))[..., None]
    gradient = jnp.mean(noise * values, axis=(0, 1))[..., None]
    gradient = gradient / jnp.linalg.norm(gradient, axis=-2, keepdims=True)
    weighted = noise[..., :, None] * (noise * values)[..., None, :]
    along = gradient * jnp.swapaxes(gradient, -1, -2)
    across = jnp.broadcast_to(jnp.eye(noise.shape[-1], dtype=along.dtype), along.shape) - along
    sizes, axes = jnp.linalg.eigh(across @ jnp.mean(weighted, axis=(0, 1)) @ across)
    order = jnp.argsort(-jnp.abs(sizes), axis=-1)[..., None, :]
    axes = jnp.take_along_axis(axes, order, axis=-1)
    columns = jnp.linalg.qr(jnp.concatenate([gradient, axes[..., :-1]], axis=-1))[0]
    # Lines must increase: only then are both tails sums without cancellation.
    return columns * jnp.sign(jnp.sum(columns[..., :1] * gradient, axis=-2, keepdims=True))


@eqx.filter_jit
def _along(axes: Array, others: Array, jumps: int) -> Float[Array, "nodes sets n *batch m"]:
    """Return the noise at the nodes of lines, which are parallel to the first of the axes."""
    fixed, rest = others[..., :jumps], others[..., jumps:]
    base = jnp.einsum("...ij,...j->...i", axes[..., 1:], rest)[None]
    nodes = jnp.asarray(_NODES, others.dtype).reshape(-1, *[1] * (base.ndim - 1))
    moved = base + nodes * axes[..., 0].reshape(1, 1, 1, *axes.shape[:-1])
    fixed = jnp.broadcast_to(fixed[None], (*moved.shape[:-1], jumps))
    return jnp.concatenate([fixed, moved], axis=-1)


def _over_sets(parts: Float[Array, "sets *batch"]) -> Estimate:
    error = jnp.std(parts, axis=0, ddof=1) / np.sqrt(len(parts))
    return Estimate(jnp.mean(parts, axis=0), error)


@eqx.filter_jit
def _tails(lines: Lines, level: Float[Array, "*batch"]) -> Tails:
    """Return the tails at levels, whose last axes are those of the batch."""
    values, batch = lines.values, lines.values.shape[3:]
    full = np.broadcast_shapes(level.shape, batch)
    rows = jnp.broadcast_to(level, full).reshape(-1, *full[len(full) - len(batch) :])
    slopes = jnp.tensordot(jnp.asarray(_SLOPES, values.dtype), values, 1)
    found = jax.lax.map(lambda row: _at_level(lines, slopes, row), rows)
    whole = lambda a: jnp.moveaxis(a, 1, 0).reshape(a.shape[1], *full)
    return Tails(*map(whole, found))


def _slope_weights() -> Float[np.ndarray, "nodes nodes"]:
    """Return the matrix that maps values to slopes at nodes, exact for polynomials."""
    count, matrix = len(_NODES), np.zeros((len(_NODES), len(_NODES)))
    for i, node in enumerate(_NODES):
        first = int(np.clip(i - _STENCIL // 2, 0, count - _STENCIL))
        near = slice(first, first + _STENCIL)
        powers = np.vander(_NODES[near] - node, increasing=True).T
        matrix[i, near] = np.linalg.solve(powers, np.eye(_STENCIL)[1])
    return matrix


_SLOPES = _slope_weights()


def _at_level(lines: Lines, slopes: Array, level: Float[Array, "*batch"]) -> Tails:
    """Return the tails at one level for each entry of the batch."""
    values = lines.values
    gaps = values - level[None, None, None]
    left, right = gaps[:-1], gaps[1:]
    crosses = (left <= 0) != (right <= 0)
    sign = jnp.where(crosses, jnp.where(left <= 0, 1.0, -1.0), 0.0)
    # Cells without a crossing are replaced, so that nothing in them is infinite.
    ends = [jnp.where(crosses, a, e) for a, e in ((left, -0.5), (right, 0.5))]
    column = lambda a: jnp.asarray(a, values.dtype).reshape(-1, *[1] * (values.ndim - 1))
    steps = column(np.diff(_NODES))
    rises = [jnp.where(crosses, a * steps, 1.0) for a in (slopes[:-1], slopes[1:])]
    place, slope = _crossing(*ends, *rises)
    z = column(_NODES[:-1]) + steps * place
    mean = lambda a: jnp.einsum("sn,sn...->s...", lines.weights, a)
    below = mean(jnp.sum(sign * ndtr(z), axis=0) + (gaps[-1] <= 0))
    above = mean(jnp.sum(sign * ndtr(-z), axis=0) + (gaps[0] > 0))
    heights = jnp.abs(sign) * norm.pdf(z) * steps / jnp.maximum(jnp.abs(slope), _FLAT)
    height = mean(jnp.sum(heights, axis=0))
    return Tails(below, above, height)


def _crossing(left: Array, right: Array, first: Array, last: Array) -> tuple[Array, Array]:
    """Return where the cubic with these ends and slopes is zero on (0, 1), and its slope there."""
    fixed = jax.lax.stop_gradient
    square, cube = 3 * (right - left) - 2 * first - last, first + last - 2 * (right - left)
    coefficients = left, first, square, cube
    increasing = fixed([a * jnp.sign(right - left) for a in coefficients])
    ends = jnp.zeros_like(left), jnp.ones_like(left)
    start = fixed(-left / (right - left))
    s = increasing_root(lambda s: _cubic(increasing, s), *ends, start)
    # One more Newton step carries the derivatives of the implicit function.
    value, slope = _cubic(coefficients, s)
    return s - value / fixed(jnp.where(slope == 0, jnp.inf, slope)), slope


def _cubic(coefficients: Sequence[Array], s: Array) -> tuple[Array, Array]:
    """Return the value of a cubic and its slope."""
    left, first, square, cube = coefficients
    value = left + s * (first + s * (square + s * cube))
    return value, first + s * (2 * square + s * 3 * cube)
