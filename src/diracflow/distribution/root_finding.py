"""Zeros of increasing functions, quantiles, and nodes of Gauss--Legendre panels."""

from collections.abc import Callable
from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

# Nodes of a panel, and their weights, on (0, 1).
_LEGENDRE = np.polynomial.legendre.leggauss(16)
NODES, NODE_WEIGHTS = (_LEGENDRE[0] + 1) / 2, _LEGENDRE[1] / 2
# Sufficient for bisections alone to reach rounding accuracy.
_MOST_ITERATIONS = 100


def without_gradient(tree: Any) -> Any:
    """Return the tree with derivatives stopped at all of its arrays.

    Without traced arrays it is the same tree, for which programs are compiled already.
    """
    if not any(isinstance(a, jax.core.Tracer) for a in jax.tree.leaves(tree)):
        return tree
    return jax.tree.map(lambda a: jax.lax.stop_gradient(a) if eqx.is_array(a) else a, tree)


def increasing_root(
    function: Callable[[Array], tuple[Array, Array]],
    low: Float[Array, "*n"],
    high: Float[Array, "*n"],
    first: Float[Array, "*n"] | None = None,
) -> Float[Array, "*n"]:
    """Return where an elementwise increasing function crosses zero, by Newton's method.

    A bisection replaces every Newton step that would leave the bracket. `function` returns value
    and slope. The first guess is the middle of the bracket by default.
    """
    tolerance = 4 * jnp.finfo(low.dtype).eps

    def unfinished(state: tuple) -> Array:
        v, _, _, change, count = state
        moving = jnp.any(change > tolerance * (1 + jnp.abs(v)))
        return moving & (count < _MOST_ITERATIONS)

    def improve(state: tuple) -> tuple:
        v, low, high, _, count = state
        value, slope = function(v)
        low, high = jnp.where(value <= 0, v, low), jnp.where(value >= 0, v, high)
        newton = v - value / slope
        inside = (newton >= low) & (newton <= high)
        better = jnp.where(inside, newton, 0.5 * (low + high))
        return better, low, high, jnp.abs(better - v), count + 1

    first = 0.5 * (low + high) if first is None else first
    start = first, low, high, jnp.full_like(first, jnp.inf), 0
    return jax.lax.while_loop(unfinished, improve, start)[0]


def newton_step(
    u: Float[Array, "*n"], value: Float[Array, "*n"], slope: Float[Array, "*n"]
) -> Float[Array, "*n"]:
    """Return a zero after one more Newton step: its derivatives are those of the zero."""
    slope = jax.lax.stop_gradient(slope)
    return u - value / jnp.where(slope > 0, slope, jnp.inf)


class Continuous(Protocol):
    """A law of one variable with a continuous distribution function."""

    def tails(self, u: Float[Array, "*n"]) -> tuple[Array, Array, Array]:
        """Return the probabilities below and above `u`, and the density there."""
        ...

    def bracket(self, levels: tuple[Array, Array]) -> tuple[Array, ...]:
        """Return ends between which the quantiles lie, and a first guess if there is one."""
        ...


def quantile(law: Continuous, q: Float[Array, "*n"], upper: bool) -> Float[Array, "*n"]:
    """Return the variable with probability `q` below it, or above it if `upper`."""
    levels = (1 - q, q) if upper else (q, 1 - q)
    u = jax.lax.stop_gradient(_quantile(*without_gradient((law, levels))))
    return newton_step(u, *excess(law, levels, u))


@eqx.filter_jit
def _quantile(law: Continuous, levels: tuple[Array, Array]) -> Float[Array, "*n"]:
    return increasing_root(lambda u: excess(law, levels, u), *law.bracket(levels))


def excess(law: Continuous, levels: tuple[Array, Array], u: Array) -> tuple[Array, Array]:
    """Return the probability below `u` minus the one wanted, and its slope."""
    (below, above, height), (lower, rest) = law.tails(u), levels
    # The smaller of the two probabilities is compared, because of rounding.
    return jnp.where(lower < 0.5, below - lower, rest - above), height


@eqx.filter_jit
def panel_points(
    low: Float[Array, "*batch"], width: Float[Array, "*batch"], count: int
) -> tuple[Float[Array, "n *batch"], Float[Array, "n *batch"]]:
    """Return the nodes of adjacent panels, and their weights."""
    index = jnp.arange(count, dtype=low.dtype)[:, None]
    steps = (index + jnp.asarray(NODES, low.dtype)[None]).reshape(-1, *[1] * low.ndim)
    weights = jnp.tile(jnp.asarray(NODE_WEIGHTS, low.dtype), count)
    return low[None] + width[None] * steps, weights.reshape(steps.shape) * width[None]
