r"""`learn`: from an SDE to its transition density."""

import functools
import numbers
import os
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, Unpack, overload

import jax
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from ..density.learned import LearnedDensity
from ..density.summary import certificate_table
from ..planning.prepare import checked_resources, prepare
from ..planning.settings import Options, settings_for
from ..sde.argument_checks import checked_flag, checked_key
from ..sde.boundaries import BoundaryWarning, boundary_message
from ..sde.laws import AbstractLaw
from ..sde.problem import Problem, checked_problem
from ..sde.sde import SDE
from ..training.checkpointer import NoCheckpointer, checkpointer_in
from ..training.multiprocess import ProcessGroup, process_group
from ..training.progress import Progress
from ..training.stages import in_time, tell, watched
from ..training.state import Status
from .outcome import delivered, source_density, trained_density
from .run import Call, Run, ShowProgress, begin, display_for, subdivided


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
        call = Call(problem, settings, resources, key, preset, called)
        make = display_for(progress) if processes.first else Progress  # one process reports
        with (
            checkpointer_in(checkpoint, processes) as checkpointer,
            make(problem.horizon) as display,
        ):
            density = _learned(call, certify, checkpointer, processes, display)
    return delivered(density, certify)


def _learned(
    call: Call,
    certify: bool,
    checkpointer: NoCheckpointer,
    processes: ProcessGroup,
    display: Progress,
) -> LearnedDensity:
    """Plan, train and certify."""
    flow_key, draw_key = jr.split(call.key)
    run: Run | None = None
    with ExitStack() as stack:
        begun = functools.partial(begin, call, draw_key, processes, display)
        with watched(display.stage):
            tell("planning")
            prepared = prepare(call.problem, call.settings, flow_key, call.resources, call.preset)
            if prepared.plan.method != "source":
                run = begun(prepared, checkpointer)
                status = run.proceed()
                if status is Status.DIVIDED and (found := subdivided(call, run, flow_key)):
                    checkpointer = stack.enter_context(checkpointer.following_training())
                    run = begun(found, checkpointer)
                    status = run.proceed()
        with watched(display.stage, *_time_left(call, run)):
            if run is None:
                density = source_density(call, prepared, time.monotonic() - call.called)
            else:
                density = trained_density(call, run, status)
            if certify and density.horizon > 0:
                bounds = functools.partial(certificate_table, density, call.key)
                table = checkpointer.certificate or in_time(bounds, ())
                checkpointer.finish(table)
                density = density.with_provenance(certificate=table)
    return density


def _time_left(call: Call, run: Run | None) -> tuple[float, float]:
    """Return the seconds left, and those of the first step, most of which is compilation."""
    limit = call.settings.max_seconds
    if run is None:
        return limit - (time.monotonic() - call.called), 0.0
    history = run.loop.history
    return limit - run.loop.seconds(), history[0].seconds if history else 0.0


def _warn_of_boundaries(problem: Problem) -> None:
    message = boundary_message(problem.boundaries)
    if message:
        warnings.warn(message, BoundaryWarning, stacklevel=4)
