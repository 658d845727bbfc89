"""Where the processes of a sweep run: here, or where Dask or Ray put them.

All a backend does is to call `launch` for each run, some at a time. Results are files; machines
must see the directory of the sweep under the same name, and have diracflow installed.
"""

import concurrent.futures
import importlib
import queue
from typing import Any, Protocol

from .launch import Launch, cores_for, launch


class Backend(Protocol):
    """Processes somewhere."""

    def submit(self, what: Launch) -> None:
        """Start a run as soon as there is room."""

    def pending(self, seconds: float) -> set[str]:
        """Names of runs that have not ended; waits so long for one to end."""

    def fault(self, name: str) -> str | None:
        """What kept an ended run from being launched, if anything did."""

    def close(self) -> None:
        """Let go of what is held."""


class LocalBackend:
    """Processes on this machine, `jobs` at a time."""

    def __init__(self, jobs: int = 1, threads: int | None = None):
        _count("jobs", jobs)
        self._pool = concurrent.futures.ThreadPoolExecutor(jobs)
        self._slots: queue.SimpleQueue = queue.SimpleQueue()
        for cores in cores_for(jobs, threads):
            self._slots.put(cores)
        self._futures: dict[str, concurrent.futures.Future] = {}

    def submit(self, what: Launch) -> None:
        self._futures[what.name] = self._pool.submit(self._launch, what)

    def pending(self, seconds: float) -> set[str]:
        open_ = {f: name for name, f in self._futures.items() if not f.done()}
        first = concurrent.futures.FIRST_COMPLETED
        concurrent.futures.wait(open_, timeout=seconds, return_when=first)
        return {name for future, name in open_.items() if not future.done()}

    def fault(self, name: str) -> str | None:
        return _said(self._futures[name].exception())

    def close(self) -> None:
        self._pool.shutdown()

    def _launch(self, what: Launch) -> None:
        cores = self._slots.get()
        try:
            launch(what, cores)
        finally:
            self._slots.put(cores)


class DaskBackend:
    """Tasks of a Dask cluster: that at `address`, or one of `jobs` workers on this machine."""

    def __init__(self, address: str | None = None, jobs: int = 1):
        distributed = _extra("distributed", "dask")
        _count("jobs", jobs)
        self._wait, self._timeout = distributed.wait, distributed.TimeoutError
        local = {"n_workers": jobs, "threads_per_worker": 1, "dashboard_address": None}
        # Workers only wait for processes of their own; as threads, Ctrl-C does not reach them.
        local["processes"] = False
        self._client = distributed.Client(**({"address": address} if address else local))
        self._futures: dict[str, Any] = {}

    def submit(self, what: Launch) -> None:
        # Not pure: Dask would take a run that was stopped for done.
        self._futures[what.name] = self._client.submit(launch, what, pure=False)

    def pending(self, seconds: float) -> set[str]:
        open_ = [future for future in self._futures.values() if not future.done()]
        try:
            if open_:
                self._wait(open_, timeout=seconds, return_when="FIRST_COMPLETED")
        except self._timeout:
            pass
        return {name for name, future in self._futures.items() if not future.done()}

    def fault(self, name: str) -> str | None:
        future = self._futures[name]
        return "The cluster dropped it." if future.cancelled() else _said(future.exception())

    def close(self) -> None:
        self._client.close()
        if self._client.cluster is not None:
            self._client.cluster.close()


class RayBackend:
    """Tasks of a Ray cluster: that at `address`, or one of `jobs` slots on this machine."""

    def __init__(self, address: str | None = None, jobs: int = 1, threads: int | None = None):
        self._ray = _extra("ray", "ray")
        _count("jobs", jobs)
        # On this machine a slot is a run; on a cluster a run takes the cores it computes on.
        local = {"num_cpus": jobs, "include_dashboard": False}
        self._ray.init(**({"address": address} if address else local), log_to_driver=False)
        cores = 1 if address is None else threads or 1
        self._launch = self._ray.remote(num_cpus=cores, max_retries=0)(launch)
        self._tasks: dict[str, Any] = {}

    def submit(self, what: Launch) -> None:
        self._tasks[what.name] = self._launch.remote(what)

    def pending(self, seconds: float) -> set[str]:
        self._ray.wait(list(self._tasks.values()), num_returns=self._ended() + 1, timeout=seconds)
        return self._open()

    def fault(self, name: str) -> str | None:
        try:
            self._ray.get(self._tasks[name])
        except Exception as error:
            return _said(error)
        return None

    def close(self) -> None:
        self._ray.shutdown()

    def _open(self) -> set[str]:
        tasks = list(self._tasks.values())
        _, open_ = self._ray.wait(tasks, num_returns=len(tasks), timeout=0)
        still = set(open_)
        return {name for name, task in self._tasks.items() if task in still}

    def _ended(self) -> int:
        return min(len(self._tasks) - len(self._open()), len(self._tasks) - 1)


def _extra(package: str, extra: str) -> Any:
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise ModuleNotFoundError(
            f"This needs the package `{package}`. Install it with "
            f"`pip install 'diracflow[{extra}]'`, or sweep on this machine with `--backend local`.",
            name=package,
        ) from error


def _count(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"`{name}` must be a whole number, at least 1; got {value!r}.")


def _said(error: BaseException | None) -> str | None:
    return None if error is None else f"{type(error).__name__}: {error}".strip().splitlines()[0]
