"""Extension of a learned density to a longer horizon: its conditions, and its provenance."""

import dataclasses
from typing import TYPE_CHECKING, Any

import jax

from ..planning.subinterval_rule import is_steady
from ..sde.argument_checks import checked_number
from ..training.status import Status
from .provenance import Facts
from .subintervals import division

if TYPE_CHECKING:
    from .learned import LearnedDensity, TransitionDensity

# Endings of a training after which there may be no density at later times.
_NOTHING_THERE = (Status.EXPLODING, Status.NOT_FINITE)


def extended_facts(density: "TransitionDensity", horizon: float) -> Facts:
    """Return the provenance of a density that is composed up to a horizon."""
    wanted, reach = checked_number("horizon", horizon), density.horizon
    if wanted <= 0 or reach == 0:
        raise ValueError(
            f"`horizon` must be positive, and the density must have been learned up to a positive "
            f"time; got {wanted:g}, and a density up to {reach:g}."
        )
    legs = division(wanted, reach).most
    with jax.enable_x64(True):
        steady = is_steady(density.sde, density.scope.law, density.start_time, legs * reach)
    if not steady:
        raise ValueError(
            "Only densities whose coefficients do not depend on time, and of one start time, can "
            "be extended: later subintervals start when earlier ones end. Learn it again with the "
            "longer horizon."
        )
    facts = density.facts
    return dataclasses.replace(
        facts,
        settings=dataclasses.replace(facts.settings, legs=legs),
        asked_horizon=legs * reach,
        leg=facts.trained_for(),
        # These were computed up to the shorter horizon.
        certificate=(),
        errors=(),
    )


def extension_text(density: "LearnedDensity") -> str:
    """Return the hint that a stopped training can be extended, if that is so."""
    wanted = density.facts.asked_horizon
    if density.horizon == 0 or density.status in _NOTHING_THERE:
        return ""
    base: Any = getattr(density, "base", density)
    try:
        extended_facts(base, wanted)
    except ValueError:
        return ""
    return (
        f" Its `extended({wanted:g})` composes the rest of what was learned, at a price for each "
        "query; compute the `certificate` of that."
    )
