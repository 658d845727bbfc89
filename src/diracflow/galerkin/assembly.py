r"""Assembly of the least-squares problem at the collocation points.

With $q = \log P$, the Dirac--Frenkel principle determines the velocity $\eta$ of the parameters
that brings $\nabla_\theta q\cdot\eta$ closest to the forcing $f$. The forcing is the Fokker--Planck
rate minus the rate that the moving source supplies.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..flow.ansatz import AbstractAnsatz, StandardisedAnsatz
from .collocation import Points, centred, per_point
from .rows import AbstractLinearisation, AbstractRows, Linearisation, Rows
from .streamed import StreamedLinearisation, streamed


class Values(eqx.Module):
    """Log-ratio of the density to the source, and forcing, at the collocation points, centred."""

    log_ratio: Float[Array, " n"]
    forcing: Float[Array, " n"]


@eqx.filter_jit
def assemble(
    ansatz: AbstractAnsatz, theta: Float[Array, " m"], clock: Float[Array, ""], points: Points
) -> tuple[AbstractRows, Float[Array, " n"]]:
    r"""Return Jacobian and forcing at all points, and the log-ratio of the density to the source.

    Under the current density Jacobian and forcing have mean zero for every start, since both
    $\theta$ and the Fokker--Planck equation preserve $\int P = 1$. Subtracting the sample mean
    therefore removes only noise.
    """
    at_theta, layout = ansatz.at(theta), points.layout
    values = evaluate(ansatz, theta, clock, points)
    if layout.chunk is not None:
        return streamed(at_theta, clock, points, values.forcing), values.log_ratio
    jacobian = per_point(at_theta.parameter_score, clock, points)
    rows = Rows(jacobian=centred(jacobian, points), forcing=values.forcing, layout=layout)
    return rows, values.log_ratio


@eqx.filter_jit
def linearise(
    ansatz: StandardisedAnsatz, theta: Float[Array, " m"], clock: Float[Array, ""], points: Points
) -> AbstractLinearisation:
    """Return Jacobian, forcing and the parameter Jacobian of the total rate at all points."""
    layout = points.layout
    if layout.chunk is not None:
        values = evaluate(ansatz, theta, clock, points)
        return StreamedLinearisation(
            ansatz=ansatz.at(theta), clock=clock, points=points, forcing=values.forcing
        )
    forcing, jacobian, rate = per_point(ansatz.at(theta).linearised, clock, points)
    jacobian, forcing, rate = centred((jacobian, forcing, rate), points)
    return Linearisation(jacobian=jacobian, forcing=forcing, rate_jacobian=rate, layout=layout)


def evaluate(
    ansatz: AbstractAnsatz, theta: Float[Array, " m"], clock: Float[Array, ""], points: Points
) -> Values:
    """Return log-ratio and forcing at all points."""
    at_theta = ansatz.at(theta)
    return Values(*centred(per_point(at_theta.log_ratio_and_forcing, clock, points), points))


def evaluate_rate(
    ansatz: StandardisedAnsatz, theta: Float[Array, " m"], clock: Float[Array, ""], points: Points
) -> Values:
    """Return log-ratio and total rate at all points, as implicit time steps require."""
    at_theta = ansatz.at(theta)
    return Values(*centred(per_point(at_theta.log_ratio_and_rate, clock, points), points))


@eqx.filter_jit
def source_forcings(
    ansatz: StandardisedAnsatz, clocks: Float[Array, " k"], points: Points
) -> Float[Array, " k"]:
    """Return the root mean square of the forcing of the source alone, at several clocks."""

    def at(clock: Float[Array, ""]) -> Float[Array, ""]:
        forcing = centred(per_point(ansatz.source_forcing, clock, points), points)
        return jnp.sqrt(jnp.mean(forcing**2))

    return jax.lax.map(at, clocks)
