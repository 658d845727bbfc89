r"""The right-hand side of the ODE of the parameters, by regularised least squares.

The forcing of an SDE with state-dependent noise grows as $\tau^{-1/2}$ towards the start. In the
clock $c = \sqrt\tau$ it is bounded: $d\theta/dc = 2c\,d\theta/d\tau$.

The singular values of the Jacobian span many orders of magnitude, and initially, with zero
read-outs, the columns of all hidden weights vanish. We minimise
$\|J\eta - f\|^2/N + \lambda\|\eta - \eta_0\|^2$ with $\lambda$ relative to the mean eigenvalue of
$G = J^\top J / N$, by Cholesky, in float64: in float32 the factorisation breaks down.

The prior $\eta_0$ is a multiple of the velocity of the previous step. It has no effect on
directions that the points determine. In the others the velocity stays close to the previous one,
instead of changing randomly with every set of points.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Array, Float

from ..flow.ansatz import AbstractAnsatz
from .collocation import Points, sharing_frames
from .rows import AbstractRows, assemble

# Random probes for the effective rank, whose standard error is then below sqrt(rank / 8).
_PROBES = 16
# A forcing below this, in nats per unit of clock, is rounding: the source is exact.
ROUNDING = 1e-8


class Factor(eqx.Module):
    """An upper Cholesky factor of the regularised Gram matrix, and the shift of its diagonal."""

    cholesky: Float[Array, "m m"]
    shift: Float[Array, ""]

    def solve(self, moment: Float[Array, "m *k"]) -> Float[Array, "m *k"]:
        """Return the solution for a right-hand side."""
        return cho_solve((self.cholesky, False), moment)


class NormalEquations(eqx.Module):
    """Gram matrix and right-hand side of the normal equations."""

    gram: Float[Array, "m m"]
    moment: Float[Array, " m"]

    def solve(self, regularisation: Array, prior: Array) -> Float[Array, " m"]:
        """Return the regularised velocity."""
        return prior + self.factor(regularisation).solve(self.moment - self.gram @ prior)

    def solve_and_rank(self, regularisation: Array, prior: Array) -> tuple[Array, Array, Array]:
        r"""Return the velocity, the effective rank and the condition number.

        The effective rank is $\mathrm{tr}\,G(G+\lambda)^{-1}$, estimated with random signs. The
        diagonal of the Cholesky factor gives a lower bound of the condition number.
        """
        probes = jr.rademacher(jr.key(0), (len(self.moment), _PROBES), dtype=self.gram.dtype)
        sides = jnp.column_stack([self.moment - self.gram @ prior, probes])
        factor = self.factor(regularisation)
        solved = factor.solve(sides)
        rank = jnp.sum(probes * (self.gram @ solved[:, 1:])) / _PROBES
        scales = jnp.diag(factor.cholesky)
        return prior + solved[:, 0], rank, (jnp.max(scales) / jnp.min(scales)) ** 2

    def factor(self, regularisation: Float[Array, ""]) -> Factor:
        """Return the Cholesky factor for one regularisation."""
        m = len(self.moment)
        shift = regularisation * jnp.trace(self.gram) / m
        shifted = self.gram + shift * jnp.eye(m, dtype=self.gram.dtype)
        return Factor(cho_factor(shifted)[0], shift)


def normal_equations(rows: AbstractRows) -> NormalEquations:
    """Return Gram matrix and right-hand side, as means over the points."""
    return NormalEquations(rows.gram(), rows.moment(rows.forcing))


def relative_residual(rows: AbstractRows, theta_dot: Float[Array, " m"]) -> Float[Array, ""]:
    """Return the mean square residual of `theta_dot`, relative to that of the forcing."""
    left = jnp.mean((rows.times(theta_dot) - rows.forcing) ** 2)
    total = jnp.mean(rows.forcing**2)
    return left / jnp.where(total > 0, total, 1.0)


# Returns the velocity from normal equations, regularisation and prior.
Solver = Callable[[NormalEquations, Float[Array, ""], Float[Array, " m"]], Float[Array, " m"]]


class Velocity(eqx.Module):
    r"""The velocity $d\theta/dc$ at one time, and measures of its quality."""

    theta_dot: Float[Array, " m"]
    normal: NormalEquations
    residual: Float[Array, ""]
    held_out_residuals: Float[Array, " k"]
    forcing: Float[Array, ""]  # root mean square, in nats per unit of clock
    source_gap: Float[Array, ""]  # root mean square log-ratio of the density to the source


@sharing_frames
@eqx.filter_jit
def velocity(
    ansatz: AbstractAnsatz,
    theta: Float[Array, " m"],
    clock: Float[Array, ""],
    points: Points,
    regularisation: Float[Array, ""],
    prior: Float[Array, " m"],
    candidates: Float[Array, "k m"],
    solver: Solver | None = None,
) -> Velocity:
    r"""Compute $d\theta/dc$ by least squares over `points`.

    The regularisation, relative to the mean eigenvalue of the Gram matrix, pulls towards `prior`.
    `candidates` are velocities computed at the same `theta` and `clock` with other points. Their
    residuals on `points` are held-out residuals, without the bias of in-sample ones. `solver`
    solves the normal equations, by default with a Cholesky factorisation.
    """
    rows, log_ratio = assemble(ansatz, theta, clock, points)
    normal = normal_equations(rows)
    solve = NormalEquations.solve if solver is None else solver
    theta_dot = points.layout.agreed(solve(normal, regularisation, prior))
    return Velocity(
        theta_dot=theta_dot,
        normal=normal,
        residual=relative_residuals(rows, theta_dot[None])[0],
        held_out_residuals=relative_residuals(rows, candidates),
        forcing=root_mean_square(rows.forcing),
        source_gap=root_mean_square(log_ratio),
    )


class Survey(eqx.Module):
    """Velocities for several regularisations, with effective ranks and condition numbers."""

    candidates: Float[Array, "k m"]
    ranks: Float[Array, " k"]
    conditions: Float[Array, " k"]


@eqx.filter_jit
def survey(
    normal: NormalEquations, regularisations: Float[Array, " k"], prior: Float[Array, " m"]
) -> Survey:
    """Return candidate velocities, to be compared on other points."""
    return Survey(*jax.lax.map(lambda r: normal.solve_and_rank(r, prior), regularisations))


@eqx.filter_jit
def relative_residuals(rows: AbstractRows, candidates: Float[Array, "k m"]) -> Float[Array, " k"]:
    """Return the relative residual of each candidate; zero if the forcing is only rounding."""
    residuals = jax.vmap(lambda candidate: relative_residual(rows, candidate))(candidates)
    return jnp.where(root_mean_square(rows.forcing) < ROUNDING, 0.0, residuals)


def root_mean_square(values: Float[Array, " n"]) -> Float[Array, ""]:
    """Return the root mean square."""
    return jnp.sqrt(jnp.mean(values**2))
