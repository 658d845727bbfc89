r"""Values and rows at the collocation points.

With $q = \log P$ the Dirac--Frenkel principle asks for the $\eta$ that makes
$\nabla_\theta q\cdot\eta$ closest to the forcing $f$, the part of the Fokker--Planck rate that the
moving source does not already supply.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..flow.ansatz import AbstractAnsatz, StandardisedAnsatz
from .collocation import Points
from .pointwise import centred, per_point
from .rows import AbstractLinearisation, AbstractRows, Linearisation, Rows
from .streamed import StreamedLinearisation, streamed


class Values(eqx.Module):
    """Log-density, relative to the source's, and forcing at the collocation points, centred."""

    log_ratio: Float[Array, " n"]
    forcing: Float[Array, " n"]


@eqx.filter_jit
def assemble(
    ansatz: AbstractAnsatz, theta: Float[Array, " m"], clock: Float[Array, ""], points: Points
) -> tuple[AbstractRows, Float[Array, " n"]]:
    r"""Jacobian and forcing over all points, and the log-density relative to the source's.

    Under the current density both have mean zero for every start, since $\int P = 1$ is kept by
    $\theta$ and by the Fokker--Planck equation. Taking off the sample mean removes noise only.
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
    """Jacobian, forcing and derivative of the whole rate over all points."""
    layout = points.layout
    if layout.chunk is not None:
        values = evaluate(ansatz, theta, clock, points)
        return StreamedLinearisation(
            ansatz=ansatz.at(theta), clock=clock, points=points, forcing=values.forcing
        )
    forcing, jacobian, slopes = per_point(ansatz.at(theta).linearised, clock, points)
    jacobian, forcing, slopes = centred((jacobian, forcing, slopes), points)
    return Linearisation(jacobian=jacobian, forcing=forcing, slopes=slopes, layout=layout)


def evaluate(
    ansatz: AbstractAnsatz, theta: Float[Array, " m"], clock: Float[Array, ""], points: Points
) -> Values:
    """Log-density and forcing over all points."""
    at_theta = ansatz.at(theta)
    return Values(*centred(per_point(at_theta.log_ratio_and_forcing, clock, points), points))


def evaluate_rate(
    ansatz: StandardisedAnsatz, theta: Float[Array, " m"], clock: Float[Array, ""], points: Points
) -> Values:
    """The same with the whole rate in place of the forcing, for which equations in time ask."""
    at_theta = ansatz.at(theta)
    return Values(*centred(per_point(at_theta.log_ratio_and_rate, clock, points), points))


@eqx.filter_jit
def source_forcings(
    ansatz: StandardisedAnsatz, clocks: Float[Array, " k"], points: Points
) -> Float[Array, " k"]:
    """Root mean square forcing of the source alone, at several clocks."""

    def at(clock: Float[Array, ""]) -> Float[Array, ""]:
        forcing = centred(per_point(ansatz.source_forcing, clock, points), points)
        return jnp.sqrt(jnp.mean(forcing**2))

    return jax.lax.map(at, clocks)
