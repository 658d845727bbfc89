"""What a density that is to reach further must be, and what is known of it then."""

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import jax

from ..planning.settings import MOST_LEGS
from ..planning.subinterval_rule import is_steady
from ..sde.argument_checks import checked_number
from ..training.status import Status
from .provenance import Facts

if TYPE_CHECKING:
    from .learned import TransitionDensity

# Endings after which there may be no density at later times.
_NOTHING_THERE = (Status.EXPLODING, Status.NOT_FINITE)


def extended_facts(density: "TransitionDensity", horizon: float) -> Facts:
    """The facts of a density with as many legs as a horizon takes."""
    asked, reach = checked_number("horizon", horizon), density.reach
    if asked <= 0 or reach == 0:
        raise ValueError(
            f"`horizon` must be positive, and so must be what was learned; got {asked:g}, and a "
            f"density up to {reach:g}."
        )
    legs = max(density.legs, math.ceil(asked / reach * (1 - 1e-9)))
    if legs > MOST_LEGS:
        raise ValueError(
            f"A horizon of {asked:g} takes {legs} legs of {reach:g}; there may be {MOST_LEGS}. "
            f"Learn the density up to {asked / MOST_LEGS:g} at least."
        )
    with jax.enable_x64(True):
        steady = is_steady(density.sde, density.scope.law, density.start_time, legs * reach)
    if not steady:
        raise ValueError(
            "Only densities whose coefficients do not depend on time, and of one start time, can "
            "be extended: later legs begin when earlier ones end. Learn it again with the longer "
            "horizon."
        )
    facts = density.facts
    settings = dataclasses.replace(facts.settings, legs=legs)
    # What is known at the end of the shorter horizon is not known at that of the longer one.
    unknown: dict[str, Any] = {"certificate": (), "errors": ()}
    known: dict[str, Any] = {"asked_horizon": legs * reach, "leg": facts.trained_for()}
    return dataclasses.replace(facts, settings=settings, **known, **unknown)


def extension_text(density: "TransitionDensity") -> str:
    """That what is missing of a training's horizon can be composed of what was learned, if so."""
    asked = density.facts.asked_horizon
    if density.horizon == 0 or density.status in _NOTHING_THERE:
        return ""
    try:
        extended_facts(density, asked)
    except ValueError:
        return ""
    return (
        f" Its `extended({asked:g})` composes the rest of what was learned, at a price for each "
        "query; ask the `certificate` of that."
    )
