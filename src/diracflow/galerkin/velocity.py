r"""The right-hand side of the parameters' ODE, in the square-root clock.

The forcing of an SDE with state-dependent noise grows as $\tau^{-1/2}$ towards the start. In the
clock $c = \sqrt\tau$ it is bounded: $d\theta/dc = 2c\,d\theta/d\tau$.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..flow.ansatz import AbstractAnsatz, StandardisedAnsatz
from .assembly import Rows, assemble, assemble_implicit
from .collocation import Points
from .solve import NormalEquations, normal_equations, relative_residual

# Forcing below this, in nats per unit of clock, is rounding: the source is exact and no velocity
# has anything to explain.
_ROUNDING = 1e-8


class Velocity(eqx.Module):
    r"""$d\theta/dc$ at one time, and what is known of its quality."""

    theta_dot: Float[Array, " m"]
    normal: NormalEquations
    residual: Float[Array, ""]
    fresh_residuals: Float[Array, " k"]
    forcing: Float[Array, ""]  # root mean square, in nats per unit of clock


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
    rows = assemble(ansatz.at(theta), clock, points)
    return _solved(rows, regularisation, prior, candidates)


@eqx.filter_jit
def implicit_velocity(
    ansatz: StandardisedAnsatz,
    theta: Float[Array, " m"],
    clock: Float[Array, ""],
    points: Points,
    regularisation: Float[Array, ""],
) -> Velocity:
    r"""The velocity of an implicit Euler step from the start of the clock to `clock`.

    Close to the start the Fokker--Planck equation in standardised coordinates relaxes at rates of
    $1/c$, which no explicit step can cross; an implicit one starts at $c = 0$ itself.
    """
    rows = assemble_implicit(ansatz.at(theta), clock, points)
    still = jnp.zeros_like(theta)
    return _solved(rows, regularisation, still, still[None])


def _solved(rows: Rows, regularisation: Array, prior: Array, candidates: Array) -> Velocity:
    normal = normal_equations(rows)
    theta_dot = normal.solve(regularisation, prior)
    forcing = jnp.sqrt(jnp.mean(rows.forcing**2))
    explained = forcing < _ROUNDING
    fresh = jax.vmap(lambda candidate: relative_residual(rows, candidate))(candidates)
    return Velocity(
        theta_dot=theta_dot,
        normal=normal,
        residual=jnp.where(explained, 0.0, relative_residual(rows, theta_dot)),
        fresh_residuals=jnp.where(explained, 0.0, fresh),
        forcing=forcing,
    )


class Survey(eqx.Module):
    """Velocities for several regularisations from one set of normal equations, and their ranks."""

    candidates: Float[Array, "k m"]
    ranks: Float[Array, " k"]


@eqx.filter_jit
def survey(
    normal: NormalEquations, regularisations: Float[Array, " k"], prior: Float[Array, " m"]
) -> Survey:
    """Candidates to be judged on the next points."""
    return Survey(*jax.lax.map(lambda r: normal.solve_and_rank(r, prior), regularisations))
