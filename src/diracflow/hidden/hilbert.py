r"""The order of points along Hilbert's space-filling curve, by Skilling's algorithm (2004).

Points that follow each other along the curve are near each other. Resampling in this order depends
on the weights almost continuously.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

# Bits of each coordinate. The lattice then has at least as many cells as there are particles.
_MOST_BITS = 10
_WORD = 30


def curve_order(x: Float[Array, "n d"]) -> Int[Array, " n"]:
    """Return the indices of points in their order along the curve; in one dimension sorted."""
    dim = x.shape[1]
    if dim == 1:
        return jnp.argsort(x[:, 0])
    bits = max(1, min(_MOST_BITS, _WORD // dim))
    above = x - jnp.mean(x, axis=0, keepdims=True)
    spread = jnp.std(x, axis=0, keepdims=True)
    unit = jax.nn.sigmoid(2 * above / jnp.where(spread > 0, spread, 1.0))
    cells = jnp.minimum((unit * 2**bits).astype(jnp.int32), 2**bits - 1)
    return jnp.argsort(curve_index(list(cells.T), bits))


def curve_index(cells: list[Int[Array, " n"]], bits: int) -> Int[Array, " n"]:
    """Return the position along the curve of cells of a lattice with `2**bits` cells a side."""
    x, masks = list(cells), [1 << bit for bit in range(bits - 1, -1, -1)]
    for mask in masks[:-1]:
        low = mask - 1
        for i in range(len(x)):
            # Where the bit is set, invert the lower bits of the first; else exchange them.
            swap = (x[0] ^ x[i]) & low
            high = (x[i] & mask) > 0
            first = x[0] ^ jnp.where(high, low, swap)
            x[i], x[0] = (first if i == 0 else x[i] ^ jnp.where(high, 0, swap)), first
    for i in range(1, len(x)):
        x[i] = x[i] ^ x[i - 1]
    flips = jnp.zeros_like(x[0])
    for mask in masks[:-1]:
        flips = flips ^ jnp.where((x[-1] & mask) > 0, mask - 1, 0)
    index = jnp.zeros_like(flips)
    for bit in range(bits - 1, -1, -1):
        for part in x:
            index = 2 * index + (((part ^ flips) >> bit) & 1)
    return index
