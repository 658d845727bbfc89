"""Extension of a learned density to a longer horizon: its conditions."""

from typing import TYPE_CHECKING, Any

import jax

from ..sde.argument_checks import checked_number
from ..sde.chart import plain_chart
from ..sde.problem import Problem
from ..training.state import Status
from .subintervals import division

if TYPE_CHECKING:
    from .learned import LearnedDensity, TransitionDensity

# Endings of a training after which there may be no density at later times.
_NOTHING_THERE = (Status.EXPLODING, Status.NOT_FINITE)


def extended_horizon(density: "TransitionDensity", horizon: float) -> float:
    """Return a horizon rounded up to whole subintervals; raise if it cannot be composed."""
    wanted, reach = checked_number("horizon", horizon), density.horizon
    if wanted <= 0 or reach == 0:
        raise ValueError(
            f"`horizon` must be positive, and the density must have been learned up to a positive "
            f"time; got {wanted:g}, and a density up to {reach:g}."
        )
    longest = division(wanted, reach).most * reach
    chart = plain_chart(density.sde)
    problem = Problem(density.sde, density.scope, density.start_time, longest, chart)
    with jax.enable_x64(True):
        autonomous = problem.autonomous
    if not autonomous:
        raise ValueError(
            "Only densities whose coefficients do not depend on time, and of one start time, can "
            "be extended: later subintervals start when earlier ones end. Learn it again with the "
            "longer horizon."
        )
    return longest


def extension_text(density: "LearnedDensity") -> str:
    """Return the hint that a stopped training can be extended, if that is so."""
    wanted = density.provenance.plan.horizon
    if density.horizon == 0 or density.status in _NOTHING_THERE:
        return ""
    base: Any = getattr(density, "base", density)
    try:
        extended_horizon(base, wanted)
    except ValueError:
        return ""
    return (
        f" Its `extended({wanted:g})` composes the rest from what was learned; queries then cost "
        "more. Check the `certificate` of the result."
    )
