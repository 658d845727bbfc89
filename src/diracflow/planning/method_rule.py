"""Training by Galerkin steps, or by fits.

Galerkin steps are the more accurate where they are long. In three and more dimensions, where
components act on each other and the drift bends paths, they become so short that trainings did not
reach their horizon in minutes. Fits reach it in a fixed number of steps.
"""

from typing import NamedTuple

import numpy as np

from ..flow.ansatz import StandardisedAnsatz
from ..flow.coupling_flow import IdentityFlow, SkewedFlow
from ..sde.problem import Problem
from .near_source import NearSource, per_start_source
from .settings import Settings
from .size_rules import Choice

# Steps of equal length in time. The source is the density over one of them.
_FITS = 12


class ShortDensity(NamedTuple):
    """The density over a short time: a source with cumulants of each start."""

    ansatz: StandardisedAnsatz
    time: float


def short_density(problem: Problem) -> ShortDensity:
    """Return the density over one of the steps of a training by fits."""
    time = problem.horizon / _FITS
    source = per_start_source(problem.until(time))
    flow = SkewedFlow(IdentityFlow()) if source.skewed else IdentityFlow()
    size = problem.conditioning_dim
    return ShortDensity(StandardisedAnsatz(source, flow, np.zeros(size), np.eye(size)), time)


def method_rule(
    problem: Problem, settings: Settings, near: NearSource | None, source: str, described: bool
) -> Choice:
    """Choose `"galerkin"` or `"fitted"`; the shape of the flow must be resolved.

    `near` is the source with the moments of each start, if it was measured. `source` is the name of
    the source that Galerkin steps would take. `described` is `True` if the user has described a
    training.
    """
    far = "" if near is None else f"{near.text}; "
    why_not = "settings describe a training" if described else _why_not(problem, settings, source)
    if why_not:
        return Choice("galerkin", f"{far}{why_not}")
    return Choice(
        "fitted",
        f"{far}in {problem.dim} dimensions, with components that act on each other, Galerkin steps "
        "become short",
    )


def _why_not(problem: Problem, settings: Settings, source: str) -> str:
    """Return why a problem is left to Galerkin steps, or nothing."""
    if problem.dim <= 2:
        return "in one and two dimensions Galerkin steps are more accurate"
    if settings.legs != 1:
        return "later times are composed of subintervals"
    if problem.conditioning_dim > problem.dim:
        return "parameters or start times vary"
    if settings.basis == "separated":
        return "components separate, so that Galerkin steps are long"
    if not problem.autonomous:
        return "the coefficients vary with time"
    if source != "closure":
        return f"fits need one width for all starts, and the source is {source!r}"
    return ""


def require_fits(problem: Problem, settings: Settings) -> None:
    """Raise if fits are asked for where they are not possible."""
    if settings.method != "fitted":
        return
    if not settings.standardised:
        raise ValueError('`method="fitted"` needs `flow="monotone"` or a flow of your own.')
    if not problem.autonomous:
        raise ValueError(
            '`method="fitted"` needs coefficients that do not depend on time, and one start time: '
            'each step begins when the one before it ends. Use `method="galerkin"`.'
        )
