r"""Regularised least squares for the velocity of the parameters.

The singular values of the Jacobian span many orders of magnitude, and initially, with zero
read-outs, the columns of all hidden weights vanish. We minimise
$\|J\eta - f\|^2/N + \lambda\|\eta - \eta_0\|^2$ with $\lambda$ relative to the mean eigenvalue of
$G = J^\top J / N$, by Cholesky, in float64: in float32 the factorisation breaks down.

The prior $\eta_0$ is a multiple of the velocity of the previous step. It has no effect on
directions that the points determine. In the others the velocity stays close to the previous one,
instead of changing randomly with every set of points.
"""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Array, Float

from .rows import AbstractRows

# Random probes for the effective rank, whose standard error is then below sqrt(rank / 8).
_PROBES = 16


class NormalEquations(eqx.Module):
    """Gram matrix and right-hand side of the normal equations."""

    gram: Float[Array, "m m"]
    moment: Float[Array, " m"]

    def solve(
        self, regularisation: Float[Array, ""], prior: Float[Array, " m"]
    ) -> Float[Array, " m"]:
        """Return the regularised velocity."""
        factor, _ = self.factor(regularisation)
        return prior + cho_solve((factor, False), self.moment - self.gram @ prior)

    def solve_and_rank(
        self, regularisation: Float[Array, ""], prior: Float[Array, " m"]
    ) -> tuple[Float[Array, " m"], Float[Array, ""], Float[Array, ""]]:
        r"""Return the velocity, the effective rank and the condition number.

        The effective rank is $\mathrm{tr}\,G(G+\lambda)^{-1}$, estimated with random signs. The
        diagonal of the Cholesky factor gives a lower bound of the condition number.
        """
        probes = jr.rademacher(jr.key(0), (len(self.moment), _PROBES), dtype=self.gram.dtype)
        sides = jnp.column_stack([self.moment - self.gram @ prior, probes])
        factor, _ = self.factor(regularisation)
        solved = cho_solve((factor, False), sides)
        rank = jnp.sum(probes * (self.gram @ solved[:, 1:])) / _PROBES
        scales = jnp.diag(factor)
        return prior + solved[:, 0], rank, (jnp.max(scales) / jnp.min(scales)) ** 2

    def factor(
        self, regularisation: Float[Array, ""]
    ) -> tuple[Float[Array, "m m"], Float[Array, ""]]:
        """Return the upper Cholesky factor of the regularised Gram matrix, and the shift."""
        m = len(self.moment)
        shift = regularisation * jnp.trace(self.gram) / m
        return cho_factor(self.gram + shift * jnp.eye(m, dtype=self.gram.dtype))[0], shift


def normal_equations(rows: AbstractRows) -> NormalEquations:
    """Return Gram matrix and right-hand side, as means over the points."""
    return NormalEquations(rows.gram(), rows.moment(rows.forcing))


def relative_residual(rows: AbstractRows, theta_dot: Float[Array, " m"]) -> Float[Array, ""]:
    """Return the mean square residual of `theta_dot`, relative to that of the forcing."""
    left = jnp.mean((rows.times(theta_dot) - rows.forcing) ** 2)
    total = jnp.mean(rows.forcing**2)
    return left / jnp.where(total > 0, total, 1.0)
