"""Cholesky factors and triangular solves of small matrices, as unrolled loops.

A frame needs a factor at every point. LAPACK calls for each matrix of a batch and for its
derivatives take longer than the arithmetic. XLA fuses unrolled loops with the operations around
them.
"""

import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

# Largest dimension for which loops are unrolled.
_UNROLLED = 8


def cholesky(matrix: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """Return the lower Cholesky factor of `matrix`."""
    dim = len(matrix)
    if dim > _UNROLLED:
        return jnp.linalg.cholesky(matrix)
    rest, columns = matrix, []
    for j in range(dim):
        column = rest[:, j] / jnp.sqrt(rest[j, j])
        column = jnp.where(jnp.arange(dim) < j, 0.0, column)
        rest = rest - column[:, None] * column[None, :]
        columns.append(column)
    return jnp.stack(columns, axis=1)


def solve_lower(factor: Float[Array, "d d"], right: Float[Array, "d *k"]) -> Float[Array, "d *k"]:
    """Return the solution of the lower triangular system `factor @ y = right`."""
    dim = len(factor)
    if dim > _UNROLLED:
        return solve_triangular(factor, right, lower=True)
    rows: list[Array] = []
    for i in range(dim):
        known = sum((factor[i, j] * rows[j] for j in range(i)), start=jnp.zeros((), right.dtype))
        rows.append((right[i] - known) / factor[i, i])
    return jnp.stack(rows)
