"""Zeros of increasing functions, and nodes of Gauss--Legendre panels."""

from collections.abc import Callable
from typing import Any

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
