"""The source with the moments of each start, and its measured distance from the density.

Where noise is small beside the start law, or times are short, this source is the density to within
a per cent, while small networks would have to learn how mean and covariance depend on the start.
"""

from typing import NamedTuple

import jax
import numpy as np

from ..sde.problem import Problem
from ..source.cumulants import CumulantSource
from ..source.moments import MomentSource, graded_basis, moment_source
from .explosion import explodes
from .normality import Distance
from .pilot import MANY, Pilot, distance, distances, pilot
from .settings import Settings
from .subinterval_rule import PLANE

# Draws of the start law that choose the number of steps.
_DRAWS = 256
# A source answers alone if its distance is at most this multiple of the tolerance, and this value:
# 0.03 for `quick`.
_MULTIPLE, _MOST = 2.0, 0.03
# Distance up to which the source is returned if a training stops early.
_USABLE = 0.1


# Numbers of subintervals for which simulated paths tell the distance of the source.
_DIVISIONS = (2, 4)


class NearSource(NamedTuple):
    """A source with the moments of each start, for one or several subintervals."""

    source: MomentSource
    distance: Distance  # total variation, root mean square over starts, of all subintervals
    paths: Pilot
    legs: int = 1

    @property
    def name(self) -> str:
        """The name of the source in `Settings`."""
        return "cumulants" if isinstance(self.source, CumulantSource) else "moments"

    @property
    def text(self) -> str:
        """The distance, for people."""
        each = "" if self.legs == 1 else f", over {self.legs} subintervals,"
        return (
            f"the source with {self.name} of each start{each} is within {self.distance.value:.2g} "
            f"of simulated paths (total variation, standard error {self.distance.stderr:.1g})"
        )

    @property
    def usable(self) -> bool:
        """`True` if the source is better than no answer."""
        return self.distance.value <= _USABLE

    def answers(self, settings: Settings) -> bool:
        """Return `True` if no training is needed."""
        if self.legs > 1:
            return True
        return self.distance.value + self.distance.stderr <= _enough(settings)


def _enough(settings: Settings) -> float:
    return min(_MULTIPLE * settings.tolerance, _MOST)


def near_source(problem: Problem, settings: Settings) -> NearSource | None:
    """Return the source with the moments of each start, if these are near the density.

    If, in three and more dimensions, it answers only over a half or a quarter of the horizon, these
    are the subintervals of the result. It is `None` if a few paths show that the source is far, in
    one dimension, where training takes seconds, and if the user has described a training.
    """
    described = settings.described
    alone = settings.method == "source"
    if alone and described:
        raise ValueError(
            f'`method="source"` trains nothing; leave out {", ".join(f"`{n}`" for n in described)}.'
        )
    if settings.method == "galerkin" or (not alone and (described or problem.dim == 1)):
        return None
    few = pilot(problem)
    _require_paths(problem, few)
    # At the horizon, a half and a quarter of it.
    guesses = distances(_skewed_source(problem), few)[::-1]
    near = None
    if alone or guesses[0].value - guesses[0].stderr <= _USABLE:
        near = _measured(problem)
        if alone or near.answers(settings):
            return near
    # In the plane, lattices compose what a short training learned more accurately.
    divided = _divided(problem, settings, few, guesses) if problem.dim > PLANE else None
    return divided or near


def _measured(problem: Problem) -> NearSource:
    source, paths = per_start_source(problem), pilot(problem, MANY)
    return NearSource(source, distance(source, paths), paths)


def _divided(
    problem: Problem, settings: Settings, few: Pilot, guesses: list[Distance]
) -> NearSource | None:
    """Return a source that answers over several subintervals, or `None`.

    No transition brings two laws farther apart, so that distances add up at most.
    """
    enough = _enough(settings)
    for legs, guess in zip(_DIVISIONS, guesses[1:], strict=True):
        if legs * (guess.value - guess.stderr) > enough or not problem.autonomous:
            continue
        short = problem.until(problem.horizon / legs)
        source, paths = per_start_source(short), pilot(short, MANY, few.later_starts(problem.dim))
        each = distance(source, paths)
        total = Distance(legs * each.value, legs * each.stderr)
        # The sum is an upper bound, so that its noise need not be added.
        if max(total) <= enough:
            return NearSource(source, total, paths, legs)
    return None


def _require_paths(problem: Problem, paths: Pilot) -> None:
    """Raise if some paths have no end."""
    if not np.all(np.isfinite(np.asarray(paths.ends))) and explodes(problem):
        raise ValueError(
            f"Paths from some of the starts diverge before t={problem.horizon:g}, so there is no "
            "density to learn. Shorten the `horizon`, narrow the start law, or bound the drift. "
            'With `method="galerkin"` the density is learned up to the time where they diverge.'
        )


def _skewed_source(problem: Problem) -> CumulantSource:
    """Return a source with a number of steps that suffices for most problems."""
    basis = graded_basis(problem.equation, problem.start_time, problem.draws(_DRAWS).mean(axis=0))
    return CumulantSource(problem.equation, problem.start_time, basis)


def per_start_source(problem: Problem) -> MomentSource:
    """Return the source with third cumulants, or without them if Runge--Kutta steps do not serve.

    That is so if the SDE is linear, where the other steps are exact, or if it is stiff.
    """
    draws = np.asarray(problem.draws(_DRAWS))
    with jax.enable_x64(True):
        plain, _ = moment_source(problem.equation, problem.start_time, problem.horizon, draws)
    if plain.steps is None:
        return plain
    return CumulantSource(plain.sde, plain.start_time, plain.basis, plain.steps)
