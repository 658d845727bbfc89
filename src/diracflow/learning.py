r"""`learn`: from an SDE to its transition density."""

import dataclasses
import functools
import numbers
import os
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Unpack, overload

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from .density.composed import ComposedDensity
from .density.learned import LearnedDensity, TransitionDensity, extension_text
from .density.provenance import Provenance
from .density.subintervals import division
from .density.summary import certificate_table
from .flow.ansatz import StandardisedAnsatz
from .planning.explosion import explodes
from .planning.memory import memory_text
from .planning.near_source import NearSource
from .planning.pilot import distance
from .planning.prepare import Prepared, Resources, checked_resources, prepare, source_alone
from .planning.settings import Options, Settings, settings_for
from .planning.subinterval_rule import MOST_SAMPLED
from .sde.argument_checks import checked_flag, checked_key
from .sde.boundaries import BoundaryWarning, boundary_message
from .sde.laws import AbstractLaw
from .sde.problem import Problem, checked_problem
from .sde.sde import SDE
from .training.checkpointer import NoCheckpointer, checkpointer_in
from .training.explicit_loop import ExplicitLoop, SwitchingLoop
from .training.fitted_loop import FittedLoop
from .training.loop import TimeLoop
from .training.multiprocess import ProcessGroup, process_group
from .training.progress import CallbackProgress, Progress, progress_for
from .training.run_identity import identity, versions
from .training.stages import in_time, tell, watched
from .training.state import Record, Status, Trajectory, diagnosis

ShowProgress = bool | type[Progress] | Callable[[Record], object]


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


class LearnOptions(Options, total=False):
    """Keyword arguments of `learn`."""

    preset: str
    params: Mapping[str, AbstractLaw] | None
    start_time: float | AbstractLaw
    progress: ShowProgress
    checkpoint: str | os.PathLike | None


def _key_first(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with its keyword argument `key` accepted as first argument too."""

    @functools.wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        if arguments and isinstance(arguments[0], numbers.Integral | np.ndarray | jax.Array):
            if "key" in keywords:
                raise ValueError("`key` was given twice: first and by name. Pass it once.")
            return function(*arguments[1:], key=arguments[0], **keywords)
        return function(*arguments, **keywords)

    return call


@overload
def learn(
    key: PRNGKeyArray | int,
    sde: SDE,
    starts: AbstractLaw,
    horizon: float,
    **options: Unpack[LearnOptions],
) -> LearnedDensity: ...


@overload
def learn(
    sde: SDE,
    starts: AbstractLaw,
    horizon: float,
    *,
    key: PRNGKeyArray | int,
    **options: Unpack[LearnOptions],
) -> LearnedDensity: ...


@_key_first
def learn(
    sde: SDE,
    starts: AbstractLaw,
    horizon: float,
    *,
    key: PRNGKeyArray | int,
    preset: str = "accurate",
    params: Mapping[str, AbstractLaw] | None = None,
    start_time: float | AbstractLaw = 0.0,
    progress: ShowProgress = False,
    checkpoint: str | os.PathLike | None = None,
    **options: Unpack[Options],
) -> LearnedDensity:
    r"""Learn the density of $X(s+t)$ for every start in the bulk of a law and every $t$.

    **Arguments:**

    - `sde`: the equation. A `BoundaryWarning` names ends of its domain that paths can reach.
    - `starts`: law of the start point, inside the domain. Scalars are repeated.
    - `horizon`: the longest time $T$ since the start.
    - `key`: a `jax.random.key` or an integer seed, by name or as the first argument. Equal keys
        give equal results.
    - `preset`: `"quick"`, `"accurate"` or `"paper"`.
    - `params`: a law for each parameter of the SDE, such as `{"rate": diracflow.Uniform(1, 4)}`.
    - `start_time`: the time $s$, or a law of it; with a law, queries take the time.
    - `progress`: `True` shows a progress line. A function is called after every step with a record
        that has the fields `time`, `length`, `fresh_residual`, `bound`, `seconds` and others.
    - `checkpoint`: a directory for checkpoints. Training resumes from one of the same run there.
    - `options`: fields of `diracflow.Settings`, which replace those of the preset; `certify=False`
        skips the error bound; `memory_limit` (GB), `devices` and `chunk` (rows held at once).

    **Returns:**

    A `TransitionDensity`, or a `ComposedDensity` if `legs` exceeds one. At a limit (`max_steps`,
    `max_seconds`) it reaches up to its `horizon`, with a warning; `TrainingFailed` holds it.
    """
    called, key = time.monotonic(), checked_key(key)
    settings, resources = settings_for(preset, **options), checked_resources(options)
    certify = checked_flag("certify", options.get("certify", True))
    processes = process_group(resources.layout)
    with jax.enable_x64(True):
        problem = checked_problem(sde, starts, horizon, params, start_time)
        _warn_of_boundaries(problem)
        make = _display(progress) if processes.first else Progress  # one process reports
        with (
            checkpointer_in(checkpoint, processes) as checkpointer,
            make(problem.horizon) as display,
        ):
            call = _Call(problem, settings, resources, key, preset, called)
            density = _learned(call, certify, checkpointer, processes, display)
    return _delivered(density, certify)


class _Call(NamedTuple):
    """The checked arguments of a call of `learn`, and its time."""

    problem: Problem
    settings: Settings
    resources: Resources
    key: PRNGKeyArray
    preset: str
    called: float


def _learned(
    call: _Call,
    certify: bool,
    checkpointer: NoCheckpointer,
    processes: ProcessGroup,
    display: Progress,
) -> LearnedDensity:
    """Plan, train and certify."""
    problem, settings, resources, key, preset, called = call
    flow_key, draw_key = jr.split(key)
    with watched(display.stage):
        tell("planning")
        prepared = prepare(problem, settings, flow_key, resources, preset)
        loop: TimeLoop | None = None
        if prepared.plan.method != "source":
            loop = _loop_kind(prepared)(prepared, draw_key, called, processes)
            run = functools.partial(identity, problem, prepared.plan, key)
            checkpointer.resume(run, loop)
            train = functools.partial(_run, loop, checkpointer, prepared, display)
            status = train()
    with watched(display.stage, *_time_left(settings, loop, called)):
        if loop is None:
            density = _source_density(problem, prepared, called, key)
        else:
            density = _density(problem, prepared, loop, status, train, key)
            if settings.method == "auto":
                density = _at_the_horizon(density, prepared, problem, settings, key)
        if certify and density.horizon > 0:
            bounds = functools.partial(certificate_table, density, key)
            table = checkpointer.certificate or in_time(bounds, ())
            checkpointer.finish(table)
            density = density.with_provenance(certificate=table)
    return density


def _time_left(settings: Settings, loop: TimeLoop | None, called: float) -> tuple[float, float]:
    """Return the seconds left, and those of the first step, most of which is compilation."""
    if loop is None:
        return settings.max_seconds - (time.monotonic() - called), 0.0
    return settings.max_seconds - loop.seconds(), loop.history[0].seconds if loop.history else 0.0


def _warn_of_boundaries(problem: Problem) -> None:
    message = boundary_message(problem.boundaries)
    if message:
        warnings.warn(message, BoundaryWarning, stacklevel=4)


def _loop_kind(prepared: Prepared) -> type[TimeLoop]:
    if prepared.plan.method == "fitted":
        return FittedLoop
    return SwitchingLoop if isinstance(prepared.ansatz, StandardisedAnsatz) else ExplicitLoop


def _run(
    loop: TimeLoop, checkpointer: NoCheckpointer, prepared: Prepared, display: Progress
) -> Status:
    """Run a loop to its end, with checkpoints and a progress line."""
    display.horizon = prepared.problem.horizon  # of the first subinterval
    with checkpointer.following(), loop.processes.deferred_signals():

        def report(record: Record) -> None:
            checkpointer.step(loop)
            display.update(record)

        display.announce(_announcement(prepared))
        display.resume(loop.history)
        tell("compilation")
        status = loop.run(report)
        if status.failed and explodes(prepared.problem):
            status = Status.EXPLODING
        display.finish(status)
    return status


def _display(progress: ShowProgress) -> Callable[[float], Progress]:
    """Return what makes a display, given the horizon."""
    if isinstance(progress, type) and issubclass(progress, Progress):
        return progress
    if callable(progress):
        return functools.partial(CallbackProgress, callback=progress)
    return functools.partial(progress_for, shown=checked_flag("progress", progress))


def _announcement(prepared: Prepared) -> str:
    plan = prepared.plan
    divided = f"{plan.legs} subintervals of {plan.reach:g}; the flow learns the first. "
    size = memory_text(plan.memory, prepared.settings, plan.parameters, prepared.layout)
    return (divided if plan.legs > 1 else "") + size


def _density(
    problem: Problem,
    prepared: Prepared,
    loop: TimeLoop,
    status: Status,
    train: Callable[[], Status],
    key: PRNGKeyArray,
) -> LearnedDensity:
    """Return what a loop has learned.

    `train` continues it if there is no lattice that composes the rest.
    """
    density = _as_it_is(problem, prepared, loop, status, key)
    without_lattice = isinstance(density, ComposedDensity) and density.lattice is None
    if status is Status.DIVIDED and without_lattice:
        loop.divides = False  # the rest would be composed by quasi-Monte Carlo
        density = _as_it_is(problem, prepared, loop, train(), key)
    _warn_of_sampling(density)
    return density


def _as_it_is(
    problem: Problem, prepared: Prepared, loop: TimeLoop, status: Status, key: PRNGKeyArray
) -> LearnedDensity:
    if status is Status.DIVIDED:
        prepared, status = _divided(prepared, loop.clock**2), Status.FINISHED
    course = Course(status, loop.seconds(), tuple(loop.history))
    trained = _with_provenance(problem, prepared, loop.trajectory(), course, key)
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


def _source_density(
    problem: Problem, prepared: Prepared, began: float, key: PRNGKeyArray
) -> LearnedDensity:
    """Return a source as a density, composed if it is one over subintervals."""
    none = np.zeros((0, 0))
    still = Trajectory(np.zeros(1), np.zeros((1, 0)), none, none)
    course = Course(Status.FINISHED, time.monotonic() - began, ())
    return _with_provenance(problem, prepared, still, course, key).composed()


class Course(NamedTuple):
    """The course of a training."""

    status: Status
    seconds: float
    history: tuple[Record, ...]


def _with_provenance(
    problem: Problem,
    prepared: Prepared,
    trajectory: Trajectory,
    course: Course,
    key: PRNGKeyArray,
) -> TransitionDensity:
    provenance = Provenance(
        plan=prepared.plan,
        **course._asdict(),
        versions=versions(),
        key=tuple(np.asarray(jr.key_data(key)).ravel().tolist()),
        boundaries=problem.boundaries,
    )
    return TransitionDensity(prepared.ansatz, trajectory, problem.laws, provenance, problem.chart)


def _at_the_horizon(
    density: LearnedDensity,
    prepared: Prepared,
    problem: Problem,
    settings: Settings,
    key: PRNGKeyArray,
) -> LearnedDensity:
    """Return the source or a composed density instead, if a training did not get there."""
    better = _better_source(density, prepared, problem)
    if better is not None:
        resources, plan = Resources(prepared.layout), prepared.plan
        alone = source_alone(problem, settings, better, resources, plan.preset)
        return _source_density(problem, alone, time.monotonic() - density.provenance.seconds, key)
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
        stacklevel=6,
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


def _delivered(density: LearnedDensity, certify: bool) -> LearnedDensity:
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
