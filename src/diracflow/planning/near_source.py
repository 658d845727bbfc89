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
from .pilot import MANY, Pilot, distance, pilot
from .settings import Settings

# Draws of the start law that choose the number of steps.
_DRAWS = 256
# A source answers alone if its distance is at most this multiple of the tolerance, and this value:
# 0.03 for `quick`.
_MULTIPLE, _MOST = 2.0, 0.03
# Distance up to which the source is returned if a training stops early.
_USABLE = 0.1


class NearSource(NamedTuple):
    """A source with the moments of each start."""

    source: MomentSource
    distance: Distance  # total variation, root mean square over starts
    paths: Pilot

    @property
    def name(self) -> str:
        """The name of the source in `Settings`."""
        return "cumulants" if isinstance(self.source, CumulantSource) else "moments"

    @property
    def text(self) -> str:
        """The distance, for people."""
        return (
            f"the source with {self.name} of each start is within {self.distance.value:.2g} of "
            f"simulated paths (total variation, standard error {self.distance.stderr:.1g})"
        )

    @property
    def usable(self) -> bool:
        """`True` if the source is better than no answer."""
        return self.distance.value <= _USABLE

    def answers(self, settings: Settings) -> bool:
        """Return `True` if no training is needed."""
        return self.distance.value + self.distance.stderr <= _enough(settings)


def _enough(settings: Settings) -> float:
    return min(_MULTIPLE * settings.tolerance, _MOST)


def near_source(problem: Problem, settings: Settings) -> NearSource | None:
    """Return the source with the moments of each start, if these are near the density.

    The result is `None` if a few paths show that it is far, in one dimension, where training takes
    seconds, and if the user has described a training.
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
    first_guess = distance(_skewed_source(problem), few)
    if first_guess.value - first_guess.stderr > _USABLE and not alone:
        return None
    source, paths = per_start_source(problem), pilot(problem, MANY)
    return NearSource(source, distance(source, paths), paths)


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
