r"""Residual of a learned density in the Fokker--Planck equation.

With $q = \log P$, the residual is $r = \partial_tq - \mathcal{A}_t[q]$. It belongs to the density
that users query: parameters and their velocity are interpolated between the knots of their
trajectory. In the ansatz's own coordinates, and per unit of the clock $c = \sqrt t$, it is
$r_c = \nabla_\theta q\cdot\dot\theta - f$, without cancellation as $t\to0$.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..flow.ansatz import AbstractAnsatz
from ..training.state import Trajectory


class Moving(NamedTuple):
    """An ansatz at one time, and the velocity of its parameters per unit of clock."""

    ansatz: AbstractAnsatz
    theta_dot: Float[Array, " m"]
    clock: Float[Array, ""]

    def residual(self, y: Float[Array, " d"], x0: Float[Array, " d+k"]) -> Float[Array, ""]:
        """Return the residual at a point in the ansatz's own coordinates, per unit of clock."""
        ansatz, clock = self.ansatz, self.clock
        moved = jax.jvp(
            lambda theta: ansatz.at(theta).log_density(y, clock, x0),
            (ansatz.theta,),
            (self.theta_dot,),
        )[1]
        return moved - ansatz.forcing(y, clock, x0)


def moving(ansatz: AbstractAnsatz, trajectory: Trajectory, clock: Float[Array, ""]) -> Moving:
    """Return the interpolated ansatz at a clock."""
    theta, theta_dot = _velocity(trajectory, clock)
    return Moving(ansatz.at(theta), theta_dot, clock)


@eqx.filter_jit
def velocities(
    trajectory: Trajectory, clocks: Float[Array, " n"]
) -> tuple[Float[Array, "n m"], Float[Array, "n m"]]:
    """Return interpolated parameters and their velocities at some clocks."""
    return jax.vmap(lambda clock: _velocity(trajectory, clock))(clocks)


def _velocity(trajectory: Trajectory, clock: Array) -> tuple[Array, Array]:
    return jax.jvp(lambda c: trajectory(c**2), (clock,), (jnp.ones_like(clock),))
