"""Running all runs of a sweep through joblib.

A joblib task only supervises the process of one run. The tasks therefore need no processes of
their own: on this machine they are threads.
"""

import contextlib
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import joblib

from ..sde.argument_checks import checked_count
from ..storage.files import Locked, locked
from .backends import BACKENDS
from .supervisor import Cores, request_stop, supervise
from .sweep_file import Sweep
from .sweep_run import Run
from .table import sweep_table, table_row, write_tables

Report = Callable[[dict[str, Any], int, int], object]


def run_sweep(
    sweep: Sweep,
    backend: str = "local",
    *,
    address: str | None = None,
    jobs: int = 1,
    threads: int | None = None,
    retry: bool = False,
    report: Report | None = None,
) -> list[dict[str, Any]]:
    """Do all runs of a sweep that have no result, and return the table of all runs.

    A run that fails becomes a row of the table, and the others continue. SIGINT (Ctrl-C) and
    SIGTERM make all runs save their checkpoints; a second signal kills them without waiting, and a
    third one abandons a cluster that does not respond. The same call resumes the sweep.

    **Arguments:**

    - `sweep`: a sweep, as returned by `read_sweep`.
    - `backend`: `"local"`, `"dask"` or `"ray"`.
    - `address`: the Dask scheduler or the Ray cluster. By default a cluster is started here.
    - `jobs`: number of simultaneous runs. A cluster with an address decides this itself.
    - `threads`: number of cores for each run. By default the jobs share the cores of this machine.
    - `retry`: also resume runs that failed.
    - `report`: called with the row of each run that ends, the number of runs that have ended, and
        the number of all runs.
    """
    if backend not in BACKENDS:
        raise ValueError(f"`backend` must be one of {', '.join(BACKENDS)}; got {backend!r}.")
    if backend == "local" and address is not None:
        raise ValueError("`address` is that of a cluster: choose the backend dask or ray.")
    checked_count("jobs", jobs)
    if threads is not None:
        checked_count("threads", threads)
    elif jobs > 1 and address is None:
        threads = max(joblib.cpu_count() // jobs, 1)
    cores = _disjoint_cores(jobs, threads) if backend == "local" else None
    received: list[int] = []
    sweep.out.mkdir(parents=True, exist_ok=True)
    try:
        with locked(sweep.out / "sweep.lock"):
            runs = _unfinished(sweep, retry)
            try:
                if runs:
                    with BACKENDS[backend](address, jobs, threads) as parallel:
                        ended = _start(sweep, runs, parallel, threads=threads, cores=cores)
                        received = _follow(sweep, runs, ended, report or (lambda *_: None))
            finally:
                rows = sweep_table(sweep)
                write_tables(sweep, rows)
    except Locked as holder:
        raise ValueError(
            f"A sweep is already running in {sweep.out}, in {holder}. Wait until it ends, or "
            "choose another directory."
        ) from None
    if received:
        signal.raise_signal(received[0])  # with the handler that the caller has installed
    return rows


def _unfinished(sweep: Sweep, retry: bool) -> list[Run]:
    """Return the runs that need to be done, and prepare their folders."""
    runs = []
    for run in sweep.runs:
        folder = sweep.folder(run)
        result = folder.result()
        if result is not None and retry and result["failed"]:
            folder.reopen()
            result = None
        if result is None:
            folder.prepare(run)
            runs.append(run)
    return runs


def _start(
    sweep: Sweep, runs: list[Run], parallel: joblib.Parallel, **options: Any
) -> Iterator[str]:
    """Start the runs and yield the name of each one that ends."""
    task = joblib.delayed(supervise)
    tasks = [task(sweep.folder(run).path, sweep.base, sweep.stop, **options) for run in runs]
    try:
        yield from parallel(tasks)
    except Exception as error:
        raise RuntimeError(
            f"The backend of the sweep failed: {type(error).__name__}: {error}. Runs that are "
            "still under way save their checkpoints; the same command resumes the sweep."
        ) from error


def _follow(sweep: Sweep, runs: list[Run], ended: Iterator[str], report: Report) -> list[int]:
    """Report each run that ends, and return the signals that stopped the sweep."""
    sweep.stop.unlink(missing_ok=True)
    waiting = {run.name: run for run in runs}
    with _stop_on_signals(sweep.stop) as received:
        try:
            for name in ended:
                run = waiting.pop(name)
                if not received:
                    row = table_row(run, sweep.folder(run))
                    report(row, len(sweep.runs) - len(waiting), len(sweep.runs))
        except BaseException:
            # If the backend failed, the file stays for the runs that it has lost.
            if not received:
                request_stop(sweep.stop)
            for name in ended:
                waiting.pop(name)
            raise
        finally:
            if not waiting:
                sweep.stop.unlink(missing_ok=True)
    return received


@contextlib.contextmanager
def _stop_on_signals(stop: Path) -> Iterator[list[int]]:
    """Turn SIGINT and SIGTERM into requests to stop, and yield the list of received signals.

    An exception would make joblib abandon its tasks; instead they end, one after another.
    """
    received: list[int] = []

    def handle(number: int, frame: Any) -> None:
        received.append(number)
        request_stop(stop, at_once=len(received) > 1)
        if len(received) > 2:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield received  # Python handles signals in the main thread only
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    handled = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in handled}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _disjoint_cores(jobs: int, threads: int | None) -> Cores | None:
    """Return a set of cores for each job, or `None` if the jobs need more than there are."""
    if threads is None or not hasattr(os, "sched_getaffinity"):
        return None
    allowed = sorted(os.sched_getaffinity(0))
    if jobs * threads > len(allowed):
        return None
    cores: Cores = queue.SimpleQueue()
    for first in range(0, jobs * threads, threads):
        cores.put(set(allowed[first : first + threads]))
    return cores
