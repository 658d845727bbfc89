r"""The inputs of a flow's networks beside the state: the start, or the start and the path.

The shape of a density depends on where its paths have been. Where the drift only attracts, the
start determines it well enough. Where paths rotate, as around a limit cycle, it depends on where
they are now: then the networks also receive the source's mean, which moves with time.
"""

import jax.numpy as jnp
import numpy as np

from ..sde.coefficient_checks import coefficients
from ..sde.problem import Problem
from .choice import Choice
from .settings import Settings

# Rotation over the horizon, in radians, from which on the networks receive the path. It is below
# 0.01 for gradient drifts (Beneš, a double well in the plane), 1.05 for a Lotka-Volterra model up
# to t = 1, and 5.8 for van der Pol's oscillator up to t = 5.
_ROTATION = 1.0
_DRAWS = 64


def context_rule(problem: Problem, settings: Settings) -> Choice:
    """Choose `"start"` or `"path"`."""
    if not settings.standardised:
        return Choice("start", "the affine flow takes the start")
    if problem.degenerate:
        # Langevin's equation in a double well is solved with the start; the path was not tried.
        return Choice("start", "the noise is degenerate")
    radians = rotation(problem)
    size = f"the drift Jacobian rotates paths by {radians:.2g} radians over the horizon"
    if radians >= _ROTATION:
        return Choice("path", f"{size}, at least {_ROTATION:g}")
    return Choice("start", f"{size}, less than {_ROTATION:g}")


def rotation(problem: Problem) -> float:
    """Return by how many radians the drift Jacobian rotates nearby paths over the horizon.

    This is the mean over starts, in units of the start law's standard deviations, so that it does
    not depend on the units of the states.
    """
    draws = problem.draws(_DRAWS)
    found = coefficients(problem.equation, problem.start_time, jnp.zeros(()), jnp.asarray(draws))
    jacobians = np.asarray(found[2])
    spread = np.std(draws[:, : problem.dim], axis=0)
    unit = jacobians * spread[None, None, :] / spread[None, :, None]
    unit = unit[np.all(np.isfinite(unit), axis=(1, 2))]
    if len(unit) == 0:
        return 0.0
    rates = np.linalg.norm((unit - unit.transpose(0, 2, 1)) / 2, ord=2, axis=(1, 2))
    return float(rates.mean() * problem.horizon)
