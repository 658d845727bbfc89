"""Functions of one point at all of them, and what is common to their values."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .collocation import Points

# Points taken together: their intermediate values should fit in a cache.
CACHED = 512


def per_point(function: Callable, clock: Float[Array, ""], points: Points) -> Any:
    """`function(y, clock, x0)` at every point; for its arrays see `Layout.each`."""
    return points.layout.each(eqx.Partial(together, function, clock), points.y, points.x0)


def together(
    function: Callable, clock: Float[Array, ""], y: Float[Array, "n d"], x0: Float[Array, "n d+k"]
) -> Any:
    """`function(y, clock, x0)` for every row, some rows at a time."""
    return jax.lax.map(
        lambda point: function(point[0], clock, point[1]), (y, x0), batch_size=CACHED
    )


def centred(values: Any, points: Points) -> Any:
    """Values without their means, scaled so that squares of them average with the weights."""
    weight = points.weight

    def one(v: Array) -> Array:
        mean = jnp.tensordot(weight, v, 1) / len(weight)
        return (v - mean[None]) * jnp.sqrt(weight).reshape(-1, *(1,) * (v.ndim - 1))

    return jax.tree.map(one, values)
