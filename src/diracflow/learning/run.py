"""The run of a time loop: its kind, its checkpoints and its progress line."""

import functools
from collections.abc import Callable
from typing import NamedTuple

from jaxtyping import PRNGKeyArray

from ..density.subintervals import division
from ..flow.ansatz import StandardisedAnsatz
from ..planning.explosion import explodes
from ..planning.memory import memory_text
from ..planning.prepare import Prepared, Resources, prepare
from ..planning.settings import MOST_LEGS, Settings
from ..planning.size_rules import Choice
from ..planning.widening import stays
from ..sde.argument_checks import checked_flag
from ..sde.problem import Problem
from ..training.checkpointer import NoCheckpointer
from ..training.explicit_loop import ExplicitLoop, SwitchingLoop
from ..training.fitted_loop import FittedLoop
from ..training.loop import TimeLoop
from ..training.multiprocess import ProcessGroup
from ..training.progress import CallbackProgress, Progress, progress_for
from ..training.run_identity import identity
from ..training.stages import tell
from ..training.state import Record, Status

ShowProgress = bool | type[Progress] | Callable[[Record], object]


class Call(NamedTuple):
    """The checked arguments of a call of `learn`, and its time."""

    problem: Problem
    settings: Settings
    resources: Resources
    key: PRNGKeyArray
    preset: str
    called: float


class Run(NamedTuple):
    """A time loop, and what follows its steps."""

    prepared: Prepared
    loop: TimeLoop
    checkpointer: NoCheckpointer
    display: Progress

    def proceed(self) -> Status:
        """Run the loop to its end, with checkpoints and a progress line."""
        prepared, loop, checkpointer, display = self
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


def begin(
    call: Call,
    key: PRNGKeyArray,
    processes: ProcessGroup,
    display: Progress,
    prepared: Prepared,
    checkpointer: NoCheckpointer,
) -> Run:
    """Return the run of a plan, restored from the last checkpoint of the same run."""
    loop = loop_for(prepared, key, call.called, processes)
    checkpointer.resume(functools.partial(identity, call.problem, prepared.plan, call.key), loop)
    return Run(prepared, loop, checkpointer, display)


def subdivided(call: Call, run: Run, key: PRNGKeyArray) -> Prepared | None:
    """Return the plan of another training for a wider law of starts, if composition needs one.

    Steps are shorter for a wider law, so that subintervals are half as long as the time reached.
    """
    reach = run.loop.clock**2
    legs = min(2 * division(call.problem.horizon, reach).most, MOST_LEGS)
    if stays(call.problem, legs):
        return None
    reason = f"steps became short at t={reach:.3g}; longer times are composed of shorter ones"
    settings, resources = call.settings, call.resources
    return prepare(call.problem, settings, key, resources, call.preset, Choice(legs, reason))


def loop_for(
    prepared: Prepared, key: PRNGKeyArray, called: float, processes: ProcessGroup
) -> TimeLoop:
    """Return the loop of a plan."""
    kind: type[TimeLoop] = ExplicitLoop
    if prepared.plan.method == "fitted":
        kind = FittedLoop
    elif isinstance(prepared.ansatz, StandardisedAnsatz):
        kind = SwitchingLoop
    return kind(prepared, key, called, processes)


def display_for(progress: ShowProgress) -> Callable[[float], Progress]:
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
