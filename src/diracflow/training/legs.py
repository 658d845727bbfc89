r"""Into how many legs a horizon is divided, and the rule that decides it.

A flow follows a density as long as its shape stays within reach. Around a limit cycle, phases
spread: after half a turn densities are arcs, later rings, and no flow of some hundred parameters
follows them well. Where coefficients do not depend on time it need not: it is trained for a part of
the horizon, and longer times are composed of it (`density.legs`).
"""

import dataclasses
import math

import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ..galerkin.collocation import sobol
from ..problem.checks import coefficients
from ..problem.laws import AbstractLaw
from ..problem.sde import SDE
from .contexts import turn
from .settings import MOST_LEGS, Settings

# Radians by which the drift may turn paths over a leg. Van der Pol's oscillator turns by 5.8 up to
# t = 5. In one leg the error there was 6.7e-3, in two of them 8.6e-4 (`quick`, seed 0).
_TURN = 3.0
# How far slopes of the drift at different starts must differ, over the horizon. Where they do not,
# the drift is linear, or nearly so, and the source alone follows it however it turns.
_VARIED = 0.1
# Starts at which coefficients are compared, and at which shares of the horizon. Multiples of the
# golden section: at equal distances a period that divides them would not show.
_DRAWS = 32
_SHARES = np.modf(np.arange(12) * (np.sqrt(5) - 1) / 2)[0]


def settled_legs(
    settings: Settings, sde: SDE, starts: AbstractLaw, start_time: float | None, horizon: float
) -> Settings:
    """The settings with a number of legs in place of `None`; their context must be settled."""
    problem = (sde, starts, start_time, horizon)
    legs = settings.legs
    if legs is None:
        legs = _wanted(*problem) if settings.context == "path" else 1
        legs = legs if legs == 1 or is_steady(*problem) else 1
    elif legs > 1 and not is_steady(*problem):
        raise ValueError(
            f"`legs={legs}` needs coefficients that do not depend on time, and one start time: "
            "later legs begin when earlier ones end. Use `legs=1`."
        )
    return dataclasses.replace(settings, legs=legs)


def leg_length(horizon: float, settings: Settings) -> float:
    """The time that a flow is trained for."""
    return horizon / (settings.legs or 1)


def legs_text(horizon: float, settings: Settings) -> str:
    """What to say of a division, if there is any."""
    if settings.legs == 1:
        return ""
    length = leg_length(horizon, settings)
    return f"{settings.legs} legs of {length:g}: the flow learns the first (`legs`). "


def _wanted(sde: SDE, starts: AbstractLaw, start_time: float | None, horizon: float) -> int:
    """Legs over which paths turn little enough."""
    if not _varies(sde, starts, start_time, horizon):
        return 1
    radians = turn(sde, starts, start_time, horizon)
    return min(max(math.ceil(radians / _TURN), 1), MOST_LEGS)


def is_steady(sde: SDE, starts: AbstractLaw, start_time: float | None, horizon: float) -> bool:
    """Whether coefficients are the same at all times that were looked at, from one start time."""
    if start_time is None:
        return False
    draws = _draws(sde, starts)
    tables = [
        coefficients(sde, start_time, jnp.asarray(tau), draws)[:3]  # the last is the time itself
        for tau in horizon * _SHARES
    ]
    return all(
        np.array_equal(np.asarray(now), np.asarray(first), equal_nan=True)
        for table in tables[1:]
        for now, first in zip(table, tables[0], strict=True)
    )


def _varies(sde: SDE, starts: AbstractLaw, start_time: float | None, horizon: float) -> bool:
    slopes = np.asarray(coefficients(sde, start_time, jnp.zeros(()), _draws(sde, starts))[2])
    slopes = slopes[np.all(np.isfinite(slopes), axis=(1, 2))]
    if len(slopes) == 0:
        return False
    spread = np.sqrt(np.mean(np.sum((slopes - slopes.mean(axis=0)) ** 2, axis=(1, 2))))
    return bool(spread * horizon >= _VARIED)


def _draws(sde: SDE, starts: AbstractLaw) -> jnp.ndarray:
    return jnp.asarray(starts.transport(sobol(jr.key(0), _DRAWS, starts.dim or sde.dim)))
