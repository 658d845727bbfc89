"""The axes along which source and flow work: those of the state, or separating ones."""

import numpy as np

from ..equation.moving_frame import Basis
from ..sde.problem import Problem
from ..source.separation import CoefficientJacobians, coefficient_jacobians, separating_basis
from .choice import Choice
from .settings import Settings

# Share of the squared off-diagonal variation of the drift Jacobian that separating axes may leave.
# On the rotated Beneš process nothing is left. On the chain of double wells, whose own axes
# separate best, there is nothing to remove.
_WORTH = 0.5
# Variation of the drift Jacobian, times the horizon, below which the drift counts as linear.
_LINEAR = 0.1
_DRAWS = 128


def basis_rule(problem: Problem, settings: Settings) -> Choice:
    """Choose `"axes"` or `"separated"`; the context must be resolved."""
    if problem.dim <= 2 or not settings.standardised or settings.context == "path":
        return Choice("axes", "networks are shared by all components and find axes themselves")
    if problem.degenerate:
        return Choice("axes", "the noise is degenerate, and axes are chosen in units of it")
    at = start_jacobians(problem)
    varies = np.sqrt(np.mean(np.sum((at.drift - at.drift.mean(axis=0)) ** 2, axis=(1, 2))))
    if varies * problem.horizon < _LINEAR:
        return Choice("axes", "the drift is linear or nearly so")
    left = separating_basis(at)[1]
    kept = f"separating axes leave {left:.2g} of the squared coupling between components"
    return Choice("separated" if left < _WORTH else "axes", kept)


def require_separable(problem: Problem, settings: Settings) -> None:
    """Raise if separating axes are asked for where noise is degenerate."""
    if settings.basis == "separated" and problem.degenerate:
        raise ValueError(
            '`basis="separated"` needs noise in every component: axes are chosen in units of it. '
            "Here the covariance `diffusion @ diffusion.T` is singular at a start. Use "
            '`basis="axes"`, or leave it to "auto".'
        )


def start_jacobians(problem: Problem) -> CoefficientJacobians:
    """Return Jacobians of the coefficients at draws of the start law."""
    return coefficient_jacobians(problem.equation, problem.start_time, problem.draws(_DRAWS))


def basis_of(settings: Settings, at: CoefficientJacobians) -> Basis | None:
    """Return the axes of resolved settings; `None` for those of the state."""
    return separating_basis(at)[0] if settings.basis == "separated" else None
