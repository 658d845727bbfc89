"""Choices of the axes, the size of the flow and the number of collocation points.

Source and flow work along the axes of the state, or along separating ones.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..equation.moving_frame import Basis
from ..sde.problem import Problem
from ..source.separation import CoefficientJacobians, coefficient_jacobians, separating_basis
from .settings import Settings


class Choice(NamedTuple):
    """The value of a setting, and why a rule chose it."""

    value: Any
    reason: str


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


# Layers are added up to this number of parameters: the cost of a velocity grows with its third
# power, and 4720 parameters took 11 s on two cores.
_MOST_PARAMETERS = 5500
# The same for networks of single components, where one pair of layers achieves much: on Beneš in
# four dimensions (`quick`, seed 0) it led to 5e-5 at t = 3, two pairs to 9e-6 at t = 2.6, both in
# 75 s. In ten dimensions two pairs have 2772 parameters, and a step took 15 s.
_MOST_OWN = 2000
# Units of the network of a single component, at the tolerance of `accurate`.
_OWN_WIDTH = 4.7
# Up to this number the points are a power of two, for which Sobol points are balanced. Above it
# three quarters of a power of two may do. The effect on the error was not measured.
_BALANCED = 4096


def networks_rule(problem: Problem, settings: Settings) -> Choice:
    """Choose `"shared"` networks, or one for each component (`"own"`)."""
    if not settings.standardised:
        return Choice("shared", "the affine flow has shared networks")
    if problem.dim <= 2:
        return Choice("shared", "the dimension is at most two")
    if settings.context == "path":
        # On Lorenz's system own networks reached a ninth of the horizon in 150 s, shared ones two
        # thirds.
        return Choice("shared", "networks receive the path")
    return Choice("own", "the dimension is above two, and parameters should grow in proportion")


def hidden_rule(problem: Problem, settings: Settings) -> Choice:
    """Choose the width of the networks.

    The outputs of a shared network grow with the dimension. Its width decreases, so that the
    number of parameters grows slowly, until the width is three. Networks of single components keep
    their width. A tighter tolerance needs more units, and so do inputs beside the start.
    """
    dim = problem.dim
    width = _OWN_WIDTH if settings.networks == "own" else 8 * min(dim / 2, 2 / dim)
    width *= (3e-3 / settings.tolerance) ** 0.1
    width *= math.sqrt(problem.conditioning_dim / dim)
    reason = f"from tolerance, dimension {dim} and {problem.conditioning_dim} conditioning inputs"
    return Choice(max(3, round(width)), reason)


def layers_rule(problem: Problem, settings: Settings, pair_size: Callable[[], int]) -> Choice:
    """Choose the number of layers, given the number of parameters in a pair of them.

    Two splits into halves separate at most four components from each other, three at most eight.
    So the number of pairs grows with the logarithm of the dimension, until there are too many
    parameters. For networks of single components two splits suffice: they are chosen by which
    components act on each other.
    """
    own = settings.networks == "own"
    pairs = 2 if own else max(2, math.ceil(math.log2(problem.dim)))
    most, size = _MOST_OWN if own else _MOST_PARAMETERS, pair_size()
    affordable = max(1, most // size)
    if affordable < pairs:
        return Choice(2 * affordable, f"a pair has {size} parameters, and {most} are affordable")
    return Choice(2 * pairs, f"{pairs} splits separate the components")


def samples_rule(settings: Settings, parameters: int) -> Choice:
    """Choose the number of collocation points, at least twice that of the parameters.

    Networks that receive the path have more to learn from the points; there it is three times.
    """
    enough = 3 if settings.context == "path" else 2
    samples = 2 ** math.ceil(math.log2(enough * parameters))
    if samples > _BALANCED and 3 * samples >= 8 * parameters:
        samples = 3 * samples // 4
    return Choice(samples, f"at least {enough} points for each of {parameters} parameters")
