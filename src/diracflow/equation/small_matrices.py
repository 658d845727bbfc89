"""Triangular factors of small matrices, written out.

A frame needs a factor at every point. Calls of LAPACK for each matrix of a batch, and more of them
for its derivatives, take longer than the arithmetic; written out, it is fused with what comes
before and after.
"""

import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

# Dimension up to which algorithms are written out.
_WRITTEN_OUT = 8


def cholesky(matrix: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """The lower triangular factor, column by column."""
    dim = len(matrix)
    if dim > _WRITTEN_OUT:
        return jnp.linalg.cholesky(matrix)
    rest, columns = matrix, []
    for j in range(dim):
        column = rest[:, j] / jnp.sqrt(rest[j, j])
        column = jnp.where(jnp.arange(dim) < j, 0.0, column)
        rest = rest - column[:, None] * column[None, :]
        columns.append(column)
    return jnp.stack(columns, axis=1)


def solve_lower(factor: Float[Array, "d d"], right: Float[Array, "d *k"]) -> Float[Array, "d *k"]:
    """Solution of a lower triangular system, row by row."""
    dim = len(factor)
    if dim > _WRITTEN_OUT:
        return solve_triangular(factor, right, lower=True)
    rows: list[Array] = []
    for i in range(dim):
        known = sum((factor[i, j] * rows[j] for j in range(i)), start=jnp.zeros((), right.dtype))
        rows.append((right[i] - known) / factor[i, i])
    return jnp.stack(rows)
