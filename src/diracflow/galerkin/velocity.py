r"""The right-hand side of the parameters' ODE, in the square-root clock.

The forcing of an SDE with state-dependent noise grows as $\tau^{-1/2}$ towards the start. In the
clock $c = \sqrt\tau$ it is bounded: $d\theta/dc = 2c\,d\theta/d\tau$.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..flow.ansatz import Ansatz
from .assembly import assemble
from .collocation import Draws
from .solve import relative_residual, solve

# Forcing below this, in nats per unit of clock, is rounding: the source is exact and no velocity
# has anything to explain.
_ROUNDING = 1e-8


class Velocity(eqx.Module):
    r"""$d\theta/dc$ at one time, and what is known of its quality."""

    theta_dot: Float[Array, " m"]
    gram: Float[Array, "m m"]
    residual: Float[Array, ""]
    fresh_residual: Float[Array, ""]
    rank: Float[Array, ""]
    forcing: Float[Array, ""]  # root mean square, in nats per unit of clock


@eqx.filter_jit
def velocity(
    ansatz: Ansatz,
    theta: Float[Array, " m"],
    clock: Float[Array, ""],
    draws: Draws,
    regularisation: Float[Array, ""],
    candidate: Float[Array, " m"],
) -> Velocity:
    r"""$d\theta/dc$ by least squares over `draws`.

    `candidate` is a velocity found at the same `theta` and `clock` with other draws; its residual
    on these is the fresh one, which does not flatter as the in-sample residual does.
    """
    rows = assemble(ansatz, theta, clock**2, draws)
    per_tau = 2 * clock
    solution = solve(rows, regularisation)
    forcing = per_tau * jnp.sqrt(jnp.mean(rows.forcing**2))
    explained = forcing < _ROUNDING
    return Velocity(
        theta_dot=per_tau * solution.theta_dot,
        gram=solution.gram,
        residual=jnp.where(explained, 0.0, solution.residual),
        fresh_residual=jnp.where(explained, 0.0, relative_residual(rows, candidate / per_tau)),
        rank=solution.rank,
        forcing=forcing,
    )
