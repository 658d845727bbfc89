"""Seeing the runs of a plan to their end."""

from collections.abc import Callable
from typing import Any

from ..storage.lock import Locked, locked
from .backends import Backend
from .launch import Launch, Stop
from .run_folder import KILLED, STOPPED, WAITING
from .sweep_file import Plan
from .sweep_run import Run
from .table import row_of, rows_of, write_tables

# Seconds to wait for the end of a run before looking up.
_PATIENCE = 0.5

Report = Callable[[dict[str, Any], int, int], object]


def run_plan(
    plan: Plan,
    backend: Callable[[], Backend],
    *,
    threads: int | None = None,
    retry: bool = False,
    report: Report | None = None,
) -> list[dict[str, Any]]:
    """Do all runs of a plan that are not done, and return the table.

    **Arguments:**

    - `plan`: as `read_plan` reads it. Its directory is made if need be.
    - `backend`: makes the backend, if there is something to run.
    - `threads`: cores that each run computes on, at most.
    - `retry`: also go on with runs that failed.
    - `report`: called with the row of each run that ends, the number of those ended, and of all.

    A run that fails is a row of the table; the others go on. Whatever ends this call, such as
    Ctrl-C, first lets runs keep their trainings; a second Ctrl-C does not wait for that. The same
    call goes on from there.
    """
    plan.out.mkdir(parents=True, exist_ok=True)
    try:
        with locked(plan.out / "sweep.lock"):
            open_ = _opened(plan, retry)
            try:
                if open_:
                    _run(plan, open_, backend(), threads, report or (lambda *_: None))
            finally:
                rows = rows_of(plan)
                write_tables(plan.out, rows)
    except Locked as holder:
        raise ValueError(
            f"A sweep is under way in {plan.out}, by {holder}. Wait for its end, or give another "
            "directory."
        ) from None
    return rows


def _opened(plan: Plan, retry: bool) -> list[Run]:
    """Runs that are to be done, their folders ready."""
    open_ = []
    for run in plan.runs:
        folder = plan.folder(run)
        result = folder.result()
        if result is not None and retry and result["failed"]:
            folder.reopen()
            result = None
        if result is None:
            folder.prepare(run)
            open_.append(run)
    return open_


def _run(
    plan: Plan, runs: list[Run], backend: Backend, threads: int | None, report: Report
) -> None:
    stop = Stop(plan.out / "stop")
    stop.clear()
    following = _Following(plan, runs, backend, report)
    try:
        for run in runs:
            place = plan.folder(run).path
            backend.submit(Launch(place, plan.base, stop.path, threads))
        following.to_the_end()
    except BaseException:
        _ended(stop, following)
        raise
    finally:
        backend.close()
        stop.clear()


def _ended(stop: Stop, following: "_Following") -> None:
    """Ask all runs to end and wait for it; a second signal ends them at once."""
    following.silent = True
    try:
        stop.ask()
        following.to_the_end()
    except BaseException:
        stop.ask(at_once=True)
        following.to_the_end()


class _Following:
    """Which runs have ended, and with what."""

    def __init__(self, plan: Plan, runs: list[Run], backend: Backend, report: Report):
        self.plan, self.backend, self.report = plan, backend, report
        self.open = {run.name: run for run in runs}
        self.silent = False

    def to_the_end(self) -> None:
        while self.open:
            pending = self.backend.pending(_PATIENCE)
            for name in [name for name in self.open if name not in pending]:
                self._end(self.open.pop(name))

    def _end(self, run: Run) -> None:
        if self.silent:
            return
        folder = self.plan.folder(run)
        if folder.status() in (WAITING, STOPPED):
            fault = self.backend.fault(run.name)
            if fault is not None:
                folder.finish({"status": KILLED, "failed": True, "message": fault})
        total = len(self.plan.runs)
        done = total - len(self.open)
        self.report(row_of(run, folder), done, total)
