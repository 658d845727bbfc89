r"""The right-hand side of the ODE of the parameters, in the square-root clock.

The forcing of an SDE with state-dependent noise grows as $\tau^{-1/2}$ towards the start. In the
clock $c = \sqrt\tau$ it is bounded: $d\theta/dc = 2c\,d\theta/d\tau$.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..flow.ansatz import AbstractAnsatz
from .assembly import assemble
from .collocation import Points
from .rows import AbstractRows
from .solve import NormalEquations, normal_equations, relative_residual

# A forcing below this, in nats per unit of clock, is rounding: the source is exact.
ROUNDING = 1e-8


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

    **Arguments:**

    - `ansatz`, `theta`, `clock`, `points`: where to assemble the least-squares problem.
    - `regularisation`: relative to the mean eigenvalue of the Gram matrix.
    - `prior`: the velocity towards which the regularisation pulls.
    - `candidates`: velocities computed at the same `theta` and `clock` with other points. Their
        residuals on `points` are held-out residuals, without the bias of in-sample ones.
    - `solver`: solves the normal equations; by Cholesky's factorisation by default.
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
