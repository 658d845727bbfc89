r"""The right-hand side of the parameters' ODE, in the square-root clock.

The forcing of an SDE with state-dependent noise grows as $\tau^{-1/2}$ towards the start. In the
clock $c = \sqrt\tau$ it is bounded: $d\theta/dc = 2c\,d\theta/d\tau$.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..flow.ansatz import AbstractAnsatz
from .assembly import assemble
from .collocation import Points
from .rows import AbstractRows
from .solve import NormalEquations, normal_equations, relative_residual

# Forcing below this, in nats per unit of clock, is rounding: the source is exact and no velocity
# has anything to explain.
ROUNDING = 1e-8


class Velocity(eqx.Module):
    r"""$d\theta/dc$ at one time, and what is known of its quality."""

    theta_dot: Float[Array, " m"]
    normal: NormalEquations
    residual: Float[Array, ""]
    fresh_residuals: Float[Array, " k"]
    forcing: Float[Array, ""]  # root mean square, in nats per unit of clock
    source_gap: Float[Array, ""]  # of the log-density from the source's, root mean square


@eqx.filter_jit
def velocity(
    ansatz: AbstractAnsatz,
    theta: Float[Array, " m"],
    clock: Float[Array, ""],
    points: Points,
    regularisation: Float[Array, ""],
    prior: Float[Array, " m"],
    candidates: Float[Array, "k m"],
) -> Velocity:
    r"""$d\theta/dc$ by least squares over `points`.

    `candidates` are velocities found at the same `theta` and `clock` with other points; their
    residuals on these are fresh: they do not flatter as the in-sample residual does.
    """
    rows, log_ratio = assemble(ansatz, theta, clock, points)
    normal = normal_equations(rows)
    theta_dot = points.layout.agreed(normal.solve(regularisation, prior))
    return Velocity(
        theta_dot=theta_dot,
        normal=normal,
        residual=relative_residuals(rows, theta_dot[None])[0],
        fresh_residuals=relative_residuals(rows, candidates),
        forcing=root_mean_square(rows.forcing),
        source_gap=root_mean_square(log_ratio),
    )


class Survey(eqx.Module):
    """Velocities for several regularisations from one set of normal equations.

    With the rank that each leaves free, and the condition number of its equations.
    """

    candidates: Float[Array, "k m"]
    ranks: Float[Array, " k"]
    conditions: Float[Array, " k"]


@eqx.filter_jit
def survey(
    normal: NormalEquations, regularisations: Float[Array, " k"], prior: Float[Array, " m"]
) -> Survey:
    """Candidates to be judged on other points."""
    return Survey(*jax.lax.map(lambda r: normal.solve_and_rank(r, prior), regularisations))


@eqx.filter_jit
def relative_residuals(rows: AbstractRows, candidates: Float[Array, "k m"]) -> Float[Array, " k"]:
    """Relative residual of each candidate; zero where the forcing is mere rounding."""
    residuals = jax.vmap(lambda candidate: relative_residual(rows, candidate))(candidates)
    return jnp.where(root_mean_square(rows.forcing) < ROUNDING, 0.0, residuals)


def root_mean_square(values: Float[Array, " n"]) -> Float[Array, ""]:
    """Root mean square."""
    return jnp.sqrt(jnp.mean(values**2))
