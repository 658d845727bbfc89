"""Starting the process of one run and watching it.

`supervise` is the joblib task, so it may run on another machine. The request to stop is a file,
because the machines of a cluster share the directory of the sweep and nothing else.
"""

import contextlib
import os
import queue
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ..storage.files import write_atomically
from .sweep_runs import RunFolder

# Seconds between two checks of the process and of the request to stop.
_INTERVAL = 0.2

# Disjoint sets of cores that no run uses at present.
Cores = queue.SimpleQueue[set[int]]


def request_stop(path: Path, at_once: bool = False) -> None:
    """Ask all runs to save their checkpoints and exit, or kill them with `at_once`."""
    write_atomically(path, [b"kill" if at_once else b"stop"])


def supervise(
    path: Path,
    base: Path,
    stop: Path,
    *,
    threads: int | None = None,
    cores: Cores | None = None,
    program: Sequence[str] = (),
) -> str:
    """Run the process of one run to its end and return the name of the run.

    The result is in the folder. It never raises because of a run: joblib would abort all others.

    **Arguments:**

    - `path`: the folder of the run.
    - `base`: the directory to which paths of the user's Python files are relative.
    - `stop`: the file that `request_stop` writes.
    - `threads`: the number of cores that the run may use. All by default.
    - `cores`: disjoint sets of cores on this machine. The run takes one and puts it back.
    - `program`: the command to start, by default `diracflow.sweep.run_process`.
    """
    # `-P`: a file in the current directory must not shadow a module.
    program = program or (sys.executable, "-P", "-m", "diracflow.sweep.run_process")
    limit = () if threads is None else ("--threads", str(threads))
    # XLA reads NPROC; it is the only limit on systems without CPU affinity.
    environment = {} if threads is None else {"NPROC": str(threads)}
    chosen = cores.get() if cores else None
    try:
        if not _stop_request(stop):
            command = [*program, str(path), str(base), *limit]
            _run_process(RunFolder(path), command, os.environ | environment, stop, chosen)
    except OSError as error:
        RunFolder(path).fail("KILLED", f"The process could not be started: {error}")
    finally:
        if cores and chosen:
            cores.put(chosen)
    return path.name


def _run_process(
    folder: RunFolder, command: list[str], env: dict[str, str], stop: Path, cores: set[int] | None
) -> None:
    with (
        (folder.path / "log.txt").open("ab") as log,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=env,
            # Ctrl-C in the terminal is for the sweep, which then asks its runs to stop.
            start_new_session=True,
        ) as process,
    ):
        if cores:
            with contextlib.suppress(ProcessLookupError):  # it has already exited
                os.sched_setaffinity(process.pid, cores)
        stopped = _wait(process, stop)
    code = process.returncode
    if code and not stopped and folder.result() is None:
        end = f"exited with code {code}"
        if code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
            end = f"was killed by {name}{' (out of memory?)' if name == 'SIGKILL' else ''}"
        folder.fail("KILLED", f"The process {end}; see log.txt in its folder.")


def _wait(process: subprocess.Popen, stop: Path) -> bool:
    """Wait for a process to exit and return `True` if it was asked to."""
    terminated = False
    while True:
        try:
            process.wait(_INTERVAL)
            return terminated
        except subprocess.TimeoutExpired:
            request = _stop_request(stop)
        if request == "kill":
            process.kill()
        elif request and not terminated:
            process.terminate()
        terminated = terminated or bool(request)


def _stop_request(stop: Path) -> str:
    try:
        return stop.read_text()
    except FileNotFoundError:
        return ""
