r"""Values and rows at the collocation points.

With $q = \log P$ the Dirac--Frenkel principle asks for the $\eta$ that makes
$\nabla_\theta q\cdot\eta$ closest to the forcing $f$, the part of the Fokker--Planck rate that the
moving source does not already supply.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..flow.ansatz import AbstractAnsatz, StandardisedAnsatz
from .collocation import Points

# Points taken together: their intermediate values should fit in a cache.
_TOGETHER = 512


class Rows(eqx.Module):
    """Jacobian and forcing at the collocation points, centred."""

    jacobian: Float[Array, "n m"]
    forcing: Float[Array, " n"]


class Linearisation(eqx.Module):
    """Rows, and the derivative of the forcing in the parameters, centred."""

    jacobian: Float[Array, "n m"]
    forcing: Float[Array, " n"]
    slopes: Float[Array, "n m"]

    def implicit(self, weight: Float[Array, ""]) -> Rows:
        r"""Rows of the equation $q(\theta+\eta) - wf(\theta+\eta) = \ldots$ to first order."""
        return Rows(self.jacobian - weight * self.slopes, self.forcing)


class Values(eqx.Module):
    """Log-density, relative to the source's, and forcing at the collocation points, centred."""

    log_ratio: Float[Array, " n"]
    forcing: Float[Array, " n"]


@eqx.filter_jit
def assemble(
    ansatz: AbstractAnsatz, theta: Float[Array, " m"], clock: Float[Array, ""], points: Points
) -> tuple[Rows, Float[Array, " n"]]:
    r"""Jacobian and forcing over all points, and the log-density relative to the source's.

    Under the current density both have mean zero for every start, since $\int P = 1$ is kept by
    $\theta$ and by the Fokker--Planck equation. Taking off the sample mean removes noise only.
    """
    at_theta = ansatz.at(theta)
    jacobian = per_point(at_theta.parameter_score, clock, points)
    values = evaluate(ansatz, theta, clock, points)
    return Rows(centred(jacobian, points), values.forcing), values.log_ratio


@eqx.filter_jit
def linearise(
    ansatz: StandardisedAnsatz, theta: Float[Array, " m"], clock: Float[Array, ""], points: Points
) -> Linearisation:
    """Jacobian, forcing and derivative of the forcing over all points."""
    forcing, jacobian, slopes = per_point(ansatz.at(theta).linearised, clock, points)
    return Linearisation(*centred((jacobian, forcing, slopes), points))


def evaluate(
    ansatz: AbstractAnsatz, theta: Float[Array, " m"], clock: Float[Array, ""], points: Points
) -> Values:
    """Log-density and forcing over all points."""
    at_theta = ansatz.at(theta)
    return Values(*centred(per_point(at_theta.log_ratio_and_forcing, clock, points), points))


@eqx.filter_jit
def source_forcings(
    ansatz: StandardisedAnsatz, clocks: Float[Array, " k"], points: Points
) -> Float[Array, " k"]:
    """Root mean square forcing of the source alone, at several clocks."""

    def at(clock: Float[Array, ""]) -> Float[Array, ""]:
        forcing = centred(per_point(ansatz.source_forcing, clock, points), points)
        return jnp.sqrt(jnp.mean(forcing**2))

    return jax.lax.map(at, clocks)


def per_point(function: Callable, clock: Float[Array, ""], points: Points) -> Any:
    """`function(y, clock, x0)` at every point."""
    return jax.lax.map(
        lambda point: function(point[0], clock, point[1]),
        (points.y, points.x0),
        batch_size=_TOGETHER,
    )


def centred(values: Any, points: Points) -> Any:
    """Values without their means, scaled so that squares of them average with the weights."""
    weight = points.weight

    def one(v: Array) -> Array:
        mean = jnp.tensordot(weight, v, 1) / len(weight)
        return (v - mean[None]) * jnp.sqrt(weight).reshape(-1, *(1,) * (v.ndim - 1))

    return jax.tree.map(one, values)
