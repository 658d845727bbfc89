"""Running all runs of a sweep through joblib: on this machine, or on a Dask or Ray cluster.

A joblib task only supervises the process of one run, so threads suffice for the tasks on this
machine. Machines of a cluster must have diracflow installed, and must see the directory of the
sweep under the same path.
"""

import contextlib
import importlib
import os
import queue
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import joblib

from ..sde.argument_checks import checked_count
from ..storage.files import Locked, locked, write_atomically
from ..storage.signals import handling
from ..uses.extras import extra
from .run_process import Cores, supervise
from .sweep_runs import Run, Sweep

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
    if backend not in _BACKENDS:
        raise ValueError(f"`backend` must be one of {', '.join(_BACKENDS)}; got {backend!r}.")
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
            results = [(run, sweep.folder(run).result()) for run in sweep.runs]
            runs = [run for run, found in results if found is None or (retry and found["failed"])]
            try:
                if runs:
                    with _BACKENDS[backend](address, jobs, threads) as options:
                        ended = _ended_runs(sweep, runs, options, threads=threads, cores=cores)
                        received = _follow(sweep, runs, ended, report or (lambda *_: None))
            finally:
                rows = sweep.write_tables()
    except Locked as holder:
        raise ValueError(
            f"A sweep is already running in {sweep.out}, in {holder}. Wait until it ends, or "
            "choose another directory."
        ) from None
    if received:
        signal.raise_signal(received[0])  # with the handler that the caller has installed
    return rows


def _ended_runs(
    sweep: Sweep, runs: list[Run], options: dict[str, Any], **resources: Any
) -> Iterator[str]:
    """Start the runs and yield the name of each one that ends."""
    for run in runs:
        sweep.folder(run).prepare(run)
    task = joblib.delayed(supervise)
    tasks = [task(sweep.folder(run).path, sweep.base, sweep.stop, **resources) for run in runs]
    # All tasks are dispatched at once, so that an adaptive cluster knows their number. Ray assigns
    # tasks to its workers in turn; with fewer of them some workers would be idle.
    defaults = {"return_as": "generator_unordered", "batch_size": 1, "pre_dispatch": "all"}
    try:
        yield from joblib.Parallel(**(defaults | options))(tasks)
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
                    report(sweep.row(run), len(sweep.runs) - len(waiting), len(sweep.runs))
        except BaseException:
            # If the backend failed, the file stays for the runs that it has lost.
            if not received:
                write_atomically(sweep.stop, [b"stop"])
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
        write_atomically(stop, [b"stop" if len(received) == 1 else b"kill"])
        if len(received) > 2:
            raise KeyboardInterrupt

    numbers = (signal.SIGINT, signal.SIGTERM)
    with handling(handle, *(n for n in numbers if signal.getsignal(n) != signal.SIG_IGN)):
        yield received


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


@contextlib.contextmanager
def _local(address: str | None, jobs: int, threads: int | None) -> Iterator[dict[str, Any]]:
    # If a worker process of loky died, all other tasks would be aborted; threads do not die.
    with joblib.parallel_config("threading"):
        yield {"n_jobs": jobs}


@contextlib.contextmanager
def _dask(address: str | None, jobs: int, threads: int | None) -> Iterator[dict[str, Any]]:
    distributed = extra("distributed", "dask")
    # Not as processes: Ctrl-C in the terminal would end these.
    local: dict[str, Any] = {"n_workers": 1, "threads_per_worker": max(jobs, 2), "processes": False}
    with (
        distributed.Client(address, **({} if address else local | {"dashboard_address": None})),
        joblib.parallel_config("dask", wait_for_workers_timeout=60),
    ):
        yield _slots(joblib.effective_n_jobs(-1), address is None and jobs == 1)


@contextlib.contextmanager
def _ray(address: str | None, jobs: int, threads: int | None) -> Iterator[dict[str, Any]]:
    ray = extra("ray", "ray")
    slots, cores = max(jobs, 2), 1
    local = {"address": "local", "num_cpus": slots, "include_dashboard": False}
    sigterm: Any = signal.getsignal(signal.SIGTERM)
    with handling(sigterm, signal.SIGTERM):  # `ray.init` replaces it
        ray.init(**({"address": address} if address else local), log_to_driver=False)
    try:
        if address is not None:
            cores = threads or 1
            nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
            slots = sum(int(node.get("CPU", 0)) // cores for node in nodes)
        importlib.import_module("ray.util.joblib").register_ray()
        with joblib.parallel_config("ray", ray_remote_args={"num_cpus": cores}):
            # Ray's joblib backend cannot return results as they come.
            yield _slots(slots, address is None and jobs == 1) | {"return_as": "list"}
    finally:
        ray.shutdown()


# Each returns arguments of `joblib.Parallel` from the address of a cluster, the number of
# simultaneous runs and the cores of each.
_BACKENDS = {"local": _local, "dask": _dask, "ray": _ray}


def _slots(slots: int, one_by_one: bool) -> dict[str, Any]:
    if slots < 2:
        raise ValueError(
            f"The cluster must have room for at least two runs; it has room for {slots}. joblib "
            "would compute a single job on this machine. Start more workers, or lower `threads`."
        )
    return {"n_jobs": slots, "pre_dispatch": 1 if one_by_one else "all"}
