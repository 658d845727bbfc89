"""The density that `learn` returns, whether or not training reached the horizon.

A training may end early for a limit or a failure. The rest of the horizon is then composed of what
was learned, or the source is returned instead, with a warning that says so.
"""

import dataclasses
import functools
import warnings

import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ..density.abstract_learned import Provenance
from ..density.composed import ComposedDensity
from ..density.learned import LearnedDensity, TransitionDensity, extension_text
from ..density.subintervals import division
from ..planning.near_source import NearSource
from ..planning.pilot import distance
from ..planning.prepare import Prepared, Resources, source_alone
from ..planning.subinterval_rule import MOST_SAMPLED
from ..sde.problem import Problem
from ..training.run_identity import versions
from ..training.stages import in_time, tell
from ..training.state import Record, Status, Trajectory, diagnosis
from .run import Call, Run


class TrainingFailed(RuntimeError):
    """Training stopped before the horizon for a numerical reason.

    `density` holds what was learned, usable up to `density.horizon`. `status` names the reason.
    """

    def __init__(self, density: LearnedDensity):
        self.density = density
        self.status = density.status
        super().__init__(
            f"{self.status.name} at t={density.horizon:g} of {density.provenance.plan.horizon:g}: "
            f"{self.status.value} What was learned is in the exception's `density`."
            f"{extension_text(density)}"
        )


def trained_density(call: Call, run: Run, status: Status) -> LearnedDensity:
    """Return what a run has learned, or the source if that is better.

    The run proceeds if there is no lattice that composes the rest of a divided training.
    """
    density = _as_it_is(call, run, status)
    without_lattice = isinstance(density, ComposedDensity) and density.lattice is None
    if status is Status.DIVIDED and without_lattice:
        run.loop.divides = False  # the rest would be composed by quasi-Monte Carlo
        density = _as_it_is(call, run, run.proceed())
    _warn_of_sampling(density)
    if call.settings.method == "auto":
        return _at_the_horizon(call, run.prepared, density)
    return density


def _as_it_is(call: Call, run: Run, status: Status) -> LearnedDensity:
    prepared, loop = run.prepared, run.loop
    if status is Status.DIVIDED:
        prepared, status = _divided(prepared, loop.clock**2), Status.FINISHED
    course = loop.seconds(), tuple(loop.history)
    trained = _with_provenance(call, prepared, loop.trajectory(), status, *course)
    if prepared.plan.legs == 1:
        return trained
    late = trained.with_provenance(status=Status.TIME_LIMIT)
    return in_time(trained.composed, late if status is Status.FINISHED else trained)


def _divided(prepared: Prepared, reach: float) -> Prepared:
    """Return a plan whose subintervals have the length that a training reached."""
    plan = prepared.plan
    legs = division(plan.horizon, reach).most
    reason = f"steps became short at t={reach:.3g}; longer times are composed of what was learned"
    reasons = {**plan.reasons, "legs": reason}
    return prepared._replace(
        plan=dataclasses.replace(plan, legs=legs, reach=reach, reasons=reasons)
    )


def source_density(call: Call, prepared: Prepared, seconds: float) -> LearnedDensity:
    """Return a source as a density, composed if it is one over subintervals."""
    none = np.zeros((0, 0))
    still = Trajectory(np.zeros(1), np.zeros((1, 0)), none, none)
    return _with_provenance(call, prepared, still, Status.FINISHED, seconds, ()).composed()


def _with_provenance(
    call: Call,
    prepared: Prepared,
    trajectory: Trajectory,
    status: Status,
    seconds: float,
    history: tuple[Record, ...],
) -> TransitionDensity:
    problem = prepared.problem  # whose law of starts may be wider than the one given
    provenance = Provenance(
        plan=prepared.plan,
        status=status,
        seconds=seconds,
        history=history,
        versions=versions(),
        key=tuple(np.asarray(jr.key_data(call.key)).ravel().tolist()),
        boundaries=problem.boundaries,
    )
    return TransitionDensity(prepared.ansatz, trajectory, problem.laws, provenance, problem.chart)


def _at_the_horizon(call: Call, prepared: Prepared, density: LearnedDensity) -> LearnedDensity:
    """Return the source or a composed density instead, if a training did not get there."""
    problem, settings = call.problem, call.settings
    better = _better_source(density, prepared, problem)
    if better is not None:
        resources, plan = Resources(prepared.layout), prepared.plan
        alone = source_alone(problem, settings, better, resources, plan.preset)
        return source_density(call, alone, density.provenance.seconds)
    stopped = density.status.failed and not settings.described
    if stopped and isinstance(density, TransitionDensity):
        return in_time(functools.partial(density.reaching, problem.horizon), density)
    return density


def _better_source(
    density: LearnedDensity, prepared: Prepared, problem: Problem
) -> NearSource | None:
    """Return the source if it reaches further than a training, or is more accurate; and warn."""
    near, status = prepared.near, density.status
    if near is None or not near.usable or status is Status.EXPLODING:
        return None
    if status is not Status.FINISHED:
        why = f"training stopped at t={density.horizon:g} of {problem.horizon:g}. {status.value}"
    elif isinstance(density, TransitionDensity):
        tell("comparison with simulated paths")
        ansatz, paths = density._at_time(jnp.asarray(density.horizon)).ansatz, near.paths.last
        trained = in_time(functools.partial(distance, ansatz, paths), None)
        if trained is None or trained.value - trained.stderr <= near.distance.value:
            return None
        why = f"the trained flow is farther from simulated paths: {trained.value:.2g}."
    else:
        return None
    warnings.warn(
        f"The density returned is a source without a flow: {why} Here {near.text}. Use "
        '`method="galerkin"` for what was trained.',
        stacklevel=7,
    )
    return near


def _warn_of_sampling(density: LearnedDensity) -> None:
    """Warn if subintervals were planned for a lattice that turned out to be too large."""
    if not isinstance(density, ComposedDensity) or density.lattice is not None:
        return
    if density.legs <= MOST_SAMPLED:
        return
    warnings.warn(
        f"The lattice for {density.legs} subintervals would need too many points: the noise is "
        "small compared with the region that paths visit. Quasi-Monte Carlo is used instead, which "
        f"is less accurate. Check the certificate, or learn again with `legs={MOST_SAMPLED}`.",
        stacklevel=6,
    )


def delivered(density: LearnedDensity, certify: bool) -> LearnedDensity:
    """Return the density; warn if a training did not get to the horizon, raise if it failed."""
    status, wanted = density.status, density.provenance.plan.horizon
    missing = certify and density.horizon > 0 and not density.provenance.certificate
    left_out = (
        " There was no time for the error bound; `density.certificate(key, t, x0)` computes it."
    )
    left_out = left_out if missing else ""
    if status.failed and density.horizon < wanted:
        raise TrainingFailed(density)
    if status.failed and isinstance(density, ComposedDensity):
        warnings.warn(
            f"Training stopped at t={density.base.horizon:g} of {wanted:g}: {status.value} Times "
            f"beyond {density.reach:g} are composed of {density.legs} subintervals; queries cost "
            "more there. Check the `certificate`, or `diracflow.evaluate.measured_distance`.",
            stacklevel=4,
        )
    elif status is not Status.FINISHED:
        warnings.warn(
            f"Training stopped at t={density.horizon:g} of {wanted:g}: {status.value}"
            f"{_cause_text(density)}{extension_text(density)}{left_out}",
            stacklevel=4,
        )
    elif missing:
        warnings.warn(f"`max_seconds` was reached.{left_out}", stacklevel=4)
    return density


def _cause_text(density: LearnedDensity) -> str:
    """Return why Galerkin steps were short, if they were; fits have a fixed length."""
    plan = density.provenance.plan
    if plan.method == "fitted" or density.horizon >= plan.reach * (1 - 1e-9):
        return ""
    cause = diagnosis(density.provenance.history)
    return f" The likely cause of slow progress is {cause.name}: {cause.value}"
