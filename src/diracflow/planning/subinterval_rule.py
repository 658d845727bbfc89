r"""The context of the networks, and the number of subintervals of the horizon.

Both depend on how far paths rotate. The shape of a density depends on where its paths have been.
Where the drift only attracts, the start determines it well enough. Where paths rotate, as around a
limit cycle, it depends on where they are now: then the networks also receive the source's mean,
which moves with time.

A flow follows a density as long as its shape is simple. Around a limit cycle the phases spread:
after half a rotation densities are arcs, later rings, which a flow of some hundred parameters
represents badly. Where coefficients do not depend on time, it need not: the flow is trained for the
first subinterval, and longer times are composed by the Chapman--Kolmogorov equation
(`density.composed`). Later subintervals begin where paths have gone: see `widening`.
"""

import math

import jax.numpy as jnp
import numpy as np

from ..sde.coefficient_checks import coefficients
from ..sde.problem import Problem
from .settings import Settings
from .size_rules import Choice
from .widening import stays

# Rotation over the horizon, in radians, from which on the networks receive the path. It is below
# 0.01 for gradient drifts (Beneš, a double well in the plane), 1.05 for a Lotka-Volterra model up
# to t = 1, and 5.8 for van der Pol's oscillator up to t = 5.
_PATH_ROTATION = 1.0
_ROTATION_DRAWS = 64


def context_rule(problem: Problem, settings: Settings) -> Choice:
    """Choose `"start"` or `"path"`."""
    if not settings.standardised:
        return Choice("start", "the affine flow takes the start")
    if problem.degenerate:
        # Langevin's equation in a double well is solved with the start; the path was not tried.
        return Choice("start", "the noise is degenerate")
    radians = rotation(problem)
    size = f"the drift Jacobian rotates paths by {radians:.2g} radians over the horizon"
    if radians >= _PATH_ROTATION:
        return Choice("path", f"{size}, at least {_PATH_ROTATION:g}")
    return Choice("start", f"{size}, less than {_PATH_ROTATION:g}")


def rotation(problem: Problem) -> float:
    """Return by how many radians the drift Jacobian rotates nearby paths over the horizon.

    This is the mean over starts, in units of the start law's standard deviations, so that it does
    not depend on the units of the states.
    """
    draws = problem.draws(_ROTATION_DRAWS)
    found = coefficients(problem.equation, problem.start_time, jnp.zeros(()), jnp.asarray(draws))
    jacobians = np.asarray(found[2])
    spread = np.std(draws[:, : problem.dim], axis=0)
    unit = jacobians * spread[None, None, :] / spread[None, :, None]
    unit = unit[np.all(np.isfinite(unit), axis=(1, 2))]
    if len(unit) == 0:
        return 0.0
    rates = np.linalg.norm((unit - unit.transpose(0, 2, 1)) / 2, ord=2, axis=(1, 2))
    return float(rates.mean() * problem.horizon)


# Rotation within a subinterval, in radians, and the largest number of subintervals, where they are
# composed on a lattice. Shorter ones are trained sooner and more accurately.
_ROTATION, _MOST = 1.0, 12
# The same where they are composed by quasi-Monte Carlo, which needs more points for each of them.
_SAMPLED_ROTATION, MOST_SAMPLED = 2.0, 4
# Lattices in three dimensions would have too many points.
PLANE = 2
# Variation of the drift Jacobian over starts, times the horizon, below which the drift counts as
# linear. The source follows a linear drift alone, however it rotates.
_VARIATION = 0.1
_DRAWS = 32


def subinterval_rule(problem: Problem, settings: Settings) -> Choice:
    """Choose the number of subintervals; the context must be resolved."""
    if settings.context != "path":
        return Choice(1, "the drift does not rotate paths enough")
    if not bends(problem):
        return Choice(1, "the drift is linear or nearly so")
    if not problem.autonomous:
        return Choice(1, "the coefficients or the start time vary with time")
    radians = rotation(problem)
    by_lattice = composes_on_lattice(problem)
    within, most = (_ROTATION, _MOST) if by_lattice else (_SAMPLED_ROTATION, MOST_SAMPLED)
    count = min(max(math.ceil(radians / within), 1), most)
    if count > 1 and not by_lattice and not stays(problem, count):
        return Choice(1, "paths leave the start law, where later subintervals would begin")
    return Choice(
        count, f"paths rotate by {radians:.2g} radians; {within:g} per subinterval, at most {most}"
    )


def divisible(problem: Problem) -> bool:
    """Return `True` if the horizon can be composed, on a lattice, of any part of it.

    Coefficients must not depend on time.
    """
    return composes_on_lattice(problem) and problem.autonomous


def require_autonomous(problem: Problem, legs: int) -> None:
    """Raise if several subintervals are asked for and the coefficients depend on time."""
    if legs > 1 and not problem.autonomous:
        raise ValueError(
            f"`legs={legs}` needs coefficients that do not depend on time, and one start time: "
            "later subintervals begin when earlier ones end. Use `legs=1`."
        )


def composes_on_lattice(problem: Problem) -> bool:
    """Return `True` in one and two dimensions, if nothing but the start is conditioned on."""
    return problem.dim <= PLANE and problem.conditioning_dim == problem.dim


def bends(problem: Problem) -> bool:
    """Return `True` if the drift is far from linear: its Jacobian differs between starts."""
    draws = jnp.asarray(problem.draws(_DRAWS))
    found = coefficients(problem.equation, problem.start_time, jnp.zeros(()), draws)[2]
    jacobians = np.asarray(found)
    jacobians = jacobians[np.all(np.isfinite(jacobians), axis=(1, 2))]
    if len(jacobians) == 0:
        return False
    spread = np.sqrt(np.mean(np.sum((jacobians - jacobians.mean(axis=0)) ** 2, axis=(1, 2))))
    return bool(spread * problem.horizon >= _VARIATION)
