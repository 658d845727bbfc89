r"""Rows of the least-squares problem for the velocity $\eta = d\theta/dc$ of the parameters.

With $q = \log P$ the Dirac--Frenkel principle asks for the $\eta$ that makes
$\nabla_\theta q\cdot\eta$ closest to the forcing $f$, the part of the Fokker--Planck rate that the
moving source does not already supply.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..flow.ansatz import AbstractAnsatz
from .collocation import Points


class Rows(eqx.Module):
    """Jacobian and forcing at the collocation points, centred."""

    jacobian: Float[Array, "n m"]
    forcing: Float[Array, " n"]


def assemble(
    ansatz: AbstractAnsatz, theta: Float[Array, " m"], clock: Float[Array, ""], points: Points
) -> Rows:
    r"""Jacobian and forcing over all points.

    Under the current density both have mean zero for every start, since $\int P = 1$ is kept by
    $\theta$ and by the Fokker--Planck equation. Taking off the sample mean removes noise only.
    """
    jacobian = per_point(ansatz, jax.grad(log_density), theta, clock, points)
    return Rows(centred(jacobian), centred(per_point(ansatz, forcing, theta, clock, points)))


def assemble_implicit(
    ansatz: AbstractAnsatz, theta: Float[Array, " m"], clock: Float[Array, ""], points: Points
) -> Rows:
    r"""Rows of an implicit Euler step from the start of the clock to `clock`.

    The forcing is taken at the end of the step, to first order:
    $f(\theta + c\eta) \approx f + cF\eta$ with $F = \nabla_\theta f$, so the Jacobian becomes
    $J - cF$.
    """
    jacobian = per_point(ansatz, jax.grad(log_density), theta, clock, points)
    values, slopes = per_point(ansatz, jax.value_and_grad(forcing), theta, clock, points)
    return Rows(centred(jacobian - clock * slopes), centred(values))


def per_point(
    ansatz: AbstractAnsatz,
    function: Callable,
    theta: Float[Array, " m"],
    clock: Float[Array, ""],
    points: Points,
) -> Array:
    """`function(theta, ansatz, clock, y, x0)` at every point."""
    return jax.vmap(lambda y, x0: function(theta, ansatz, clock, y, x0))(points.y, points.x0)


def log_density(
    theta: Array, ansatz: AbstractAnsatz, clock: Array, y: Array, x0: Array
) -> Float[Array, ""]:
    r"""$q$ at one point, as a function of the parameters."""
    return ansatz.at(theta).log_density(y, clock, x0)


def forcing(
    theta: Array, ansatz: AbstractAnsatz, clock: Array, y: Array, x0: Array
) -> Float[Array, ""]:
    r"""$f$ at one point, as a function of the parameters."""
    return ansatz.at(theta).forcing(y, clock, x0)


def centred(values: Float[Array, "n *rest"]) -> Float[Array, "n *rest"]:
    """Values minus their mean over the points."""
    return values - jnp.mean(values, axis=0, keepdims=True)
