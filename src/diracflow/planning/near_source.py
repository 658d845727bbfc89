"""The source with the moments of each start, and its measured distance from the density.

Where noise is small beside the start law, or times are short, this source is the density to within
a per cent, while small networks would have to learn how mean and covariance depend on the start.
"""

import math
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


class NearSource(NamedTuple):
    """A source with the moments of each start, for one or several subintervals."""

    source: MomentSource
    distance: Distance  # total variation over a subinterval, root mean square over starts
    paths: Pilot
    legs: int = 1

    @property
    def name(self) -> str:
        """The name of the source in `Settings`."""
        return "cumulants" if isinstance(self.source, CumulantSource) else "moments"

    @property
    def text(self) -> str:
        """The distance, for people."""
        each = "" if self.legs == 1 else f", over each of {self.legs} subintervals,"
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

    If, in three and more dimensions, it answers over half of the horizon only, the result has two
    subintervals. It is `None` if a few paths show that the source is far, in
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
    # At the horizon, and at a half and a quarter of it.
    guesses = distances(_skewed_source(problem), few)[::-1]
    near = None
    if alone or guesses[0].value - guesses[0].stderr <= _USABLE:
        near = _measured(problem)
        if alone or near.answers(settings):
            return near
    # In the plane, lattices compose what a short training learned more accurately.
    halved = _halved(problem, settings, few, guesses[1]) if problem.dim > PLANE else None
    return halved or near


def _measured(problem: Problem) -> NearSource:
    source, paths = per_start_source(problem), pilot(problem, MANY)
    return NearSource(source, distance(source, paths), paths)


def _halved(problem: Problem, settings: Settings, few: Pilot, guess: Distance) -> NearSource | None:
    """Return a source that answers over two halves of the horizon, or `None`.

    No transition brings two laws farther apart, so that distances add up at most. Those of
    different subintervals have different shapes in the end, and are added in squares: on Lorenz's
    system, with 0.019 over each half, the distance was 0.006 from a typical start, and 0.045 from
    one near the ridge between its wings. More subintervals would need many points in each mixture.
    """
    enough = _enough(settings) / math.sqrt(2)
    if guess.value - guess.stderr > enough or not problem.autonomous:
        return None
    short = problem.until(problem.horizon / 2)
    source, paths = per_start_source(short), pilot(short, MANY, few.later_starts(problem.dim))
    each = distance(source, paths)
    return NearSource(source, each, paths, 2) if max(each) <= enough else None


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
