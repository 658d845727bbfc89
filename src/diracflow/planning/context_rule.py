r"""What the networks of a flow are given beside the state, and the rule that chooses it.

The shape of a density depends on where its paths have been. Where drifts only pull, the start says
that well enough. Where paths turn, as around a limit cycle, the shape follows from where they are:
then the networks are given the source's mean as well, which moves with time, and parameters need
not imitate its motion.
"""

import dataclasses

import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ..sde.coefficient_checks import coefficients
from ..sde.laws import AbstractLaw
from ..sde.quasi_random import sobol
from ..sde.sde import SDE
from .settings import Settings

# Radians by which the drift turns paths over the horizon, above which the flow follows them. On a
# double well in the plane and on Beneš, whose drifts are gradients, it is below 0.01; on van der
# Pol's oscillator up to t = 5 it is 5.8, on a Lotka-Volterra model up to t = 1 just 1.05.
_TURN = 1.0
# Draws of the start law at which slopes are looked at.
_DRAWS = 64


def settled_context(
    settings: Settings,
    sde: SDE,
    starts: AbstractLaw,
    start_time: float | None,
    horizon: float,
    degenerate: bool = False,
) -> Settings:
    """The settings with a context in place of `"auto"`.

    Where noise is `degenerate` that is the start: Langevin's equation in a double well is solved
    with it, and has not been tried with the path.
    """
    if settings.context != "auto":
        return settings
    able = settings.flow == "monotone" and not degenerate
    follows = able and turn(sde, starts, start_time, horizon) >= _TURN
    return dataclasses.replace(settings, context="path" if follows else "start")


def turn(sde: SDE, starts: AbstractLaw, start_time: float | None, horizon: float) -> float:
    """Radians by which the drift's slopes at the starts turn neighbours over the horizon.

    In units of the start law's spread; those of the states should not matter.
    """
    draws = np.asarray(starts.transport(sobol(jr.key(0), _DRAWS, starts.dim or sde.dim)))
    found = coefficients(sde, start_time, jnp.zeros(()), jnp.asarray(draws))
    slopes = np.asarray(found[2])
    spread = np.std(draws[:, : sde.dim], axis=0)
    unit = slopes * spread[None, None, :] / spread[None, :, None]
    unit = unit[np.all(np.isfinite(unit), axis=(1, 2))]
    if len(unit) == 0:
        return 0.0
    rates = np.linalg.norm((unit - unit.transpose(0, 2, 1)) / 2, ord=2, axis=(1, 2))
    return float(rates.mean() * horizon)
