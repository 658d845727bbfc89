r"""Into how many legs a horizon is divided, and the rule that decides it.

A flow follows a density as long as its shape stays within reach. Around a limit cycle, phases
spread: after half a turn densities are arcs, later rings, and no flow of some hundred parameters
follows them well. Where coefficients do not depend on time it need not: it is trained for a part of
the horizon, and longer times are composed of it (`density.legs`). Later legs begin where paths have
gone, so the law of starts must cover that, too.
"""

import dataclasses
import math
from collections.abc import Callable

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float

from ..sde.coefficient_checks import coefficients
from ..sde.laws import AbstractLaw
from ..sde.quasi_random import sobol
from ..sde.sde import SDE
from ..sde.time_homogeneity import first_change
from .context_rule import turn
from .explosion import followed
from .settings import Settings

# Radians by which the drift may turn paths over a leg, and legs that the rule takes at most, where
# legs meet in the points of a lattice: the shorter they are, the more accurate and the sooner
# trained is the flow. Van der Pol's oscillator turns by 5.8 up to t = 5.
_TURN, _MOST = 1.0, 12
# The same where they are walked by noise: with more of them that takes more points than there are.
_WALKED_TURN, MOST_WALKED = 2.0, 4
# The most components for which there are lattices: in three, their points are too many.
PLANE = 2
# Share of paths that may be outside the starts that were trained for when the last leg begins.
_OUTSIDE = 0.02
# How far slopes of the drift at different starts must differ, over the horizon. Where they do not,
# the drift is linear, or nearly so, and the source alone follows it however it turns.
_VARIED = 0.1
# Starts at which coefficients are looked at, and from which paths are followed.
_DRAWS, _PATHS = 32, 256

Outside = Callable[[Float[Array, "n d+k"]], Bool[Array, " n"]]


def settled_legs(
    settings: Settings,
    sde: SDE,
    starts: AbstractLaw,
    start_time: float | None,
    horizon: float,
    outside: Outside,
) -> Settings:
    """The settings with a number of legs in place of `None`; their context must be settled.

    `outside` tells which of some starts, in the coordinates of the equation, are not trained for.
    """
    problem = (sde, starts, start_time, horizon)
    legs = settings.legs
    if legs is None:
        legs = _wanted(*problem) if settings.context == "path" else 1
        legs = legs if legs == 1 or (is_steady(*problem) and _stays(*problem, legs, outside)) else 1
    elif legs > 1 and not is_steady(*problem):
        raise ValueError(
            f"`legs={legs}` needs coefficients that do not depend on time, and one start time: "
            "later legs begin when earlier ones end. Use `legs=1`."
        )
    return dataclasses.replace(settings, legs=legs)


def meets_in_lattice(sde: SDE, starts: AbstractLaw) -> bool:
    """Whether legs may meet in a lattice: in the plane, if nothing but the start is given."""
    return sde.dim <= PLANE and (starts.dim or sde.dim) == sde.dim


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
    meets = meets_in_lattice(sde, starts)
    most_turn, most = (_TURN, _MOST) if meets else (_WALKED_TURN, MOST_WALKED)
    return min(max(math.ceil(radians / most_turn), 1), most)


def _stays(
    sde: SDE,
    starts: AbstractLaw,
    start_time: float | None,
    horizon: float,
    legs: int,
    outside: Outside,
) -> bool:
    """Whether paths are where starts were trained for when the last leg begins."""
    x0 = starts.sample(jr.key(0), (_PATHS,))
    x, _ = followed(sde, start_time, jnp.asarray(horizon * (1 - 1 / legs)), x0)
    gone = jnp.concatenate([x, x0[:, sde.dim :]], axis=1)
    return float(np.mean(np.asarray(outside(gone)))) <= _OUTSIDE


def is_steady(sde: SDE, starts: AbstractLaw, start_time: float | None, horizon: float) -> bool:
    """Whether coefficients are the same at all times that were looked at, from one start time."""
    if start_time is None:
        return False
    return first_change(sde, start_time, horizon, _draws(sde, starts)) is None


def _varies(sde: SDE, starts: AbstractLaw, start_time: float | None, horizon: float) -> bool:
    slopes = np.asarray(coefficients(sde, start_time, jnp.zeros(()), _draws(sde, starts))[2])
    slopes = slopes[np.all(np.isfinite(slopes), axis=(1, 2))]
    if len(slopes) == 0:
        return False
    spread = np.sqrt(np.mean(np.sum((slopes - slopes.mean(axis=0)) ** 2, axis=(1, 2))))
    return bool(spread * horizon >= _VARIED)


def _draws(sde: SDE, starts: AbstractLaw) -> jnp.ndarray:
    return jnp.asarray(starts.transport(sobol(jr.key(0), _DRAWS, starts.dim or sde.dim)))
