r"""The Gaussian source that the flow starts from."""

import numpy as np

from ..equation.moving_frame import Basis
from ..sde.problem import Problem
from ..sde.sde import SDE
from ..source.closure import FEW_STEPS, STEPS, ClosureSource
from ..source.cumulants import CumulantSource
from ..source.ensemble import Ensemble, ensemble
from ..source.gaussian_source import AbstractGaussianSource, EulerSource
from ..source.moments import moment_source
from ..source.separation import RotatedSource, rotated_sde
from .near_source import NearSource
from .pilot import misfit, pilot
from .settings import Settings
from .size_rules import Choice

# Integral of the drift Jacobian over the horizon below which paths count as straight. On the
# sheared process in six dimensions, whose drift is constant, the closure source led to errors of
# 4.5e-6 and 1.1e-5 (two seeds), because its width follows the growing noise of the ensemble; the
# Euler source led to at most 1.3e-6 (three seeds).
_STRAIGHT = 0.1
# Draws that stand for parameters and start times in the ensemble.
_TAILS = 32
# Draws for which steps of the moment source are compared with shorter ones.
_CHECKED = 256
# Distance in nats from simulated paths up to which all starts share one width. It is 1.1 for Beneš,
# where the moments of each start led to errors 65 times larger (`quick`, seed 0), and less for van
# der Pol, double wells and a gene switch. It is 3 for Lorenz's system in ten dimensions, 12 for an
# epidemic in a large population, and 14 for Lorenz's system in three dimensions, where training
# with one width did not reach the horizon.
_COMMON = 2.0


def planned_source(
    problem: Problem,
    settings: Settings,
    draws: np.ndarray,
    basis: Basis | None,
    near: NearSource | None = None,
) -> tuple[AbstractGaussianSource, Choice]:
    """Build the source; return it with its name and the reason for it.

    `problem` ends with the first subinterval. `draws` are those of the conditioning vector, along
    the axes of `basis`, or of the state if it is `None`. `near` is the source with the moments of
    each start, if its distance was measured.
    """
    if isinstance(settings.source, AbstractGaussianSource):
        source = settings.source
        return source, Choice(type(source).__name__, "set by the user")
    if not isinstance(settings.source, str):
        source = settings.source(problem)
        return source, Choice(type(source).__name__, "set by the user")
    equation = problem.equation if basis is None else rotated_sde(problem.equation, basis)

    def for_states(source: AbstractGaussianSource) -> AbstractGaussianSource:
        return source if basis is None else RotatedSource(problem.equation, basis, source)

    fitted = settings.method == "fitted"
    steps = FEW_STEPS if fitted else STEPS
    source, choice = _named_source(problem, settings.source, equation, draws, steps)
    # Fits would integrate the moments of each start at every intermediate point.
    if fitted or settings.source != "auto" or choice.value != "closure":
        return for_states(source), choice
    nats = misfit(for_states(source), pilot(problem))
    if nats < _COMMON:
        return for_states(source), choice
    name = "moments" if near is None else near.name
    choice = Choice(
        name,
        f"one width for all starts would be {nats:.2g} nats from simulated paths, more than "
        f"{_COMMON:g}; this source has the mean and covariance of each start",
    )
    return for_states(_named_source(problem, name, equation, draws)[0]), choice


def require_nondegenerate(problem: Problem, settings: Settings) -> None:
    """Raise if the source that is asked for has no density where noise is degenerate."""
    if settings.source in ("closure", "euler") and problem.degenerate:
        raise ValueError(
            f'`source="{settings.source}"` needs noise in every component; here the covariance '
            "`diffusion @ diffusion.T` is singular at a start, and so is that of an Euler step. "
            'Use `source="moments"`, with the preset "accurate" or "quick".'
        )


def _named_source(
    problem: Problem, name: str, equation: SDE, draws: np.ndarray, steps: int = STEPS
) -> tuple[AbstractGaussianSource, Choice]:
    choice, paths = Choice(name, "set by the user or the preset"), None
    if name == "auto" and problem.degenerate:
        choice = Choice(
            "moments",
            "noise does not enter every component directly, so that an Euler step has no density; "
            "this source starts from the linearised covariance of each start",
        )
    elif name in ("auto", "closure"):
        starts, tails = np.split(draws, [problem.dim], axis=1)
        moments = starts.mean(axis=0), np.cov(starts.T).reshape(problem.dim, problem.dim)
        span = problem.start_time, problem.horizon
        paths = ensemble(equation, *moments, *span, tails[:_TAILS])
        choice = _best(problem, paths) if name == "auto" else choice
    if choice.value == "closure":
        assert paths is not None
        begun = problem.start_time
        closure = ClosureSource(sde=equation, ensemble=paths, start_time=begun, steps=steps)
        return closure, choice
    if choice.value in ("moments", "cumulants"):
        checked = draws[:_CHECKED]
        source, _ = moment_source(equation, problem.start_time, problem.horizon, checked)
        if choice.value == "cumulants" and source.steps is not None:
            source = CumulantSource(equation, source.start_time, source.basis, source.steps)
        return source, choice
    return EulerSource(equation, problem.start_time), choice


def _best(problem: Problem, paths: Ensemble) -> Choice:
    if problem.conditioning_dim > problem.dim:
        # One width for all parameters is wrong for each. It still helps where densities split.
        if paths.turning < _STRAIGHT:
            return Choice(
                "moments",
                "parameters or start times vary, and the drift Jacobian differs between states "
                f"by less than {_STRAIGHT} over the horizon",
            )
        return Choice(
            "closure",
            f"the drift Jacobian differs between states by {_STRAIGHT} or more over the horizon",
        )
    size = "the drift Jacobian, integrated over the horizon, is"
    if paths.bending >= _STRAIGHT:
        return Choice("closure", f"{size} {_STRAIGHT} or more")
    return Choice("euler", f"{size} less than {_STRAIGHT}")
