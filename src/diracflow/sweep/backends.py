"""The joblib backends of a sweep: threads on this machine, Dask, or Ray.

Machines of a cluster must have diracflow installed, and must see the directory of the sweep under
the same path.
"""

import contextlib
import importlib
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import joblib

# A function of the address of a cluster, the number of simultaneous runs and the cores of a run.
Backend = Callable[[str | None, int, int | None], AbstractContextManager[joblib.Parallel]]


@contextlib.contextmanager
def _local(address: str | None, jobs: int, threads: int | None) -> Iterator[joblib.Parallel]:
    # Tasks only wait for the processes of their runs, so threads suffice. A worker process of
    # loky that died would abort all other tasks.
    with joblib.parallel_config("threading"):
        yield _parallel(jobs)


@contextlib.contextmanager
def _dask(address: str | None, jobs: int, threads: int | None) -> Iterator[joblib.Parallel]:
    distributed = _import_extra("distributed", "dask")
    with contextlib.ExitStack() as stack:
        cluster: Any = address
        if address is None:
            # Not as processes: Ctrl-C in the terminal would end these.
            local = distributed.LocalCluster(
                n_workers=1,
                threads_per_worker=max(jobs, 2),
                processes=False,
                dashboard_address=None,
            )
            cluster = stack.enter_context(local)
        stack.enter_context(distributed.Client(cluster))
        stack.enter_context(joblib.parallel_config("dask", wait_for_workers_timeout=60))
        slots = _several(joblib.effective_n_jobs(-1))
        yield _parallel(slots, address is None and jobs == 1)


@contextlib.contextmanager
def _ray(address: str | None, jobs: int, threads: int | None) -> Iterator[joblib.Parallel]:
    ray = _import_extra("ray", "ray")
    slots, cores = max(jobs, 2), 1
    local = {"address": "local", "num_cpus": slots, "include_dashboard": False}
    sigterm = signal.getsignal(signal.SIGTERM)
    ray.init(**({"address": address} if address else local), log_to_driver=False)
    try:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, sigterm)  # `ray.init` has replaced it
        if address is not None:
            cores = threads or 1
            nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
            slots = _several(sum(int(node.get("CPU", 0)) // cores for node in nodes))
        importlib.import_module("ray.util.joblib").register_ray()
        with joblib.parallel_config("ray", ray_remote_args={"num_cpus": cores}):
            # Ray's joblib backend cannot return results as they come.
            yield _parallel(slots, address is None and jobs == 1, return_as="list")
    finally:
        ray.shutdown()


BACKENDS: dict[str, Backend] = {"local": _local, "dask": _dask, "ray": _ray}


def _parallel(
    slots: int, one_by_one: bool = False, return_as: str = "generator_unordered"
) -> joblib.Parallel:
    # All tasks are dispatched at once, so that an adaptive cluster knows their number. Ray assigns
    # tasks to its workers in turn; with fewer of them some workers would be idle.
    dispatched = 1 if one_by_one else "all"
    return joblib.Parallel(slots, return_as=return_as, batch_size=1, pre_dispatch=dispatched)


def _several(slots: int) -> int:
    if slots < 2:
        raise ValueError(
            f"The cluster must have room for at least two runs; it has room for {slots}. joblib "
            "would compute a single job on this machine. Start more workers, or lower `threads`."
        )
    return slots


def _import_extra(package: str, extra: str) -> Any:
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise ModuleNotFoundError(
            f"This backend needs the package `{package}`. Install it with "
            f"`pip install 'diracflow[{extra}]'`, or use the backend local.",
            name=package,
        ) from error
