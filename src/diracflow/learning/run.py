"""The run of a time loop: its kind, its checkpoints and its progress line."""

import functools
from collections.abc import Callable
from typing import NamedTuple

from jaxtyping import PRNGKeyArray

from ..flow.ansatz import StandardisedAnsatz
from ..planning.explosion import explodes
from ..planning.memory import memory_text
from ..planning.prepare import Prepared
from ..sde.argument_checks import checked_flag
from ..training.checkpointer import NoCheckpointer
from ..training.explicit_loop import ExplicitLoop, SwitchingLoop
from ..training.fitted_loop import FittedLoop
from ..training.loop import TimeLoop
from ..training.multiprocess import ProcessGroup
from ..training.progress import CallbackProgress, Progress, progress_for
from ..training.stages import tell
from ..training.state import Record, Status

ShowProgress = bool | type[Progress] | Callable[[Record], object]


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
