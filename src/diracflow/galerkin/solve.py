r"""Regularised least squares for the velocity of the parameters.

The singular values of the Jacobian fall over many orders, and at the start (zero read-outs) the
columns of all hidden weights vanish. We solve $(G + \lambda I)\eta = J^\top f / N$ with
$G = J^\top J / N$ and $\lambda$ relative to the mean eigenvalue of $G$, by Cholesky, in float64: in
float32 the factorisation breaks down.
"""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Array, Float

from .assembly import Rows

# Probes for the trace that defines the rank: its standard error is below sqrt(rank / 8).
_PROBES = 16


class Solution(eqx.Module):
    """The least-squares velocity with its Gram matrix and its quality."""

    theta_dot: Float[Array, " m"]
    gram: Float[Array, "m m"]
    residual: Float[Array, ""]
    rank: Float[Array, ""]


def solve(rows: Rows, regularisation: Float[Array, ""]) -> Solution:
    r"""Tikhonov solution of `jacobian @ theta_dot = forcing`.

    `residual` is the mean square left over, relative to that of the forcing, on the same
    points. `rank` is the number of directions the regularisation leaves free,
    $\mathrm{tr}\,G(G+\lambda)^{-1}$, estimated with random signs.
    """
    jacobian, forcing = rows.jacobian, rows.forcing
    n, m = jacobian.shape
    gram = jacobian.T @ jacobian / n
    factor = cho_factor(gram + regularisation * jnp.trace(gram) / m * jnp.eye(m))
    theta_dot = cho_solve(factor, jacobian.T @ forcing / n)
    probes = jr.rademacher(jr.key(0), (m, _PROBES), dtype=gram.dtype)
    rank = jnp.sum(probes * (gram @ cho_solve(factor, probes))) / _PROBES
    return Solution(theta_dot, gram, relative_residual(rows, theta_dot), rank)


def relative_residual(rows: Rows, theta_dot: Float[Array, " m"]) -> Float[Array, ""]:
    """Mean square of `jacobian @ theta_dot - forcing` relative to that of the forcing."""
    left = jnp.mean((rows.jacobian @ theta_dot - rows.forcing) ** 2)
    total = jnp.mean(rows.forcing**2)
    return left / jnp.where(total > 0, total, 1.0)
