r"""Rows of the least-squares problem for the velocity $\eta = d\theta/dc$ of the parameters.

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


class Rows(eqx.Module):
    """Jacobian and forcing at the collocation points, centred."""

    jacobian: Float[Array, "n m"]
    forcing: Float[Array, " n"]


def assemble(ansatz: AbstractAnsatz, clock: Float[Array, ""], points: Points) -> Rows:
    r"""Jacobian and forcing over all points.

    Under the current density both have mean zero for every start, since $\int P = 1$ is kept by
    $\theta$ and by the Fokker--Planck equation. Taking off the sample mean removes noise only.
    """
    jacobian = per_point(ansatz.parameter_score, clock, points)
    return rows(jacobian, per_point(ansatz.forcing, clock, points), points)


def assemble_implicit(ansatz: StandardisedAnsatz, clock: Float[Array, ""], points: Points) -> Rows:
    r"""Rows of an implicit Euler step from the start of the clock to `clock`.

    The forcing is taken at the end of the step, to first order:
    $f(\theta + c\eta) \approx f + cF\eta$ with $F = \nabla_\theta f$, so the Jacobian becomes
    $J - cF$.
    """
    forcing, jacobian, slopes = per_point(ansatz.linearised, clock, points)
    return rows(jacobian - clock * slopes, forcing, points)


def per_point(function: Callable, clock: Float[Array, ""], points: Points) -> Any:
    """`function(y, clock, x0)` at every point."""
    return jax.vmap(lambda y, x0: function(y, clock, x0))(points.y, points.x0)


def rows(jacobian: Float[Array, "n m"], forcing: Float[Array, " n"], points: Points) -> Rows:
    """Rows centred, and scaled so that squares of them average with the points' weights."""
    weight = points.weight
    return Rows(
        (jacobian - (weight @ jacobian / len(weight))[None]) * jnp.sqrt(weight)[:, None],
        (forcing - weight @ forcing / len(weight)) * jnp.sqrt(weight),
    )
