"""The process of one run, and `supervise`, the joblib task that starts and watches it.

Each run has a separate process, `python -m diracflow.sweep.run_process FOLDER BASE [THREADS]`: if
it crashes or runs out of memory, the other runs continue. It saves its checkpoint and exits on
SIGTERM, and also when its supervisor has died. The supervisor may run on another machine, so the
request to stop is a file: the machines of a cluster share only the directory of the sweep.
"""

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import jax
import jax.random as jr

from ..evaluate.errors import with_errors
from ..learning.interface import learn
from ..learning.outcome import TrainingFailed
from ..storage.files import Locked, locked
from ..training.threads import limit_threads
from .sweep_runs import RunFolder

# Seconds between two checks of the process and of the request to stop.
_INTERVAL = 0.2

# Disjoint sets of cores that no run uses at present.
Cores = queue.SimpleQueue[set[int]]


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

    It never raises because of a run: joblib would abort all others. Paths of the user's files are
    relative to `base`. The file `stop` asks all runs to save their checkpoints and exit; if its
    content is `kill`, they are killed. A run may use `threads` cores, those of a set that it takes
    from `cores` and puts back. By default `program` is this module.
    """
    folder = RunFolder(path)
    # `-P`: a file in the current directory must not shadow a module.
    program = program or (sys.executable, "-P", "-m", "diracflow.sweep.run_process")
    # XLA reads NPROC; it is the only limit on systems without CPU affinity.
    limit = {} if threads is None else {"NPROC": str(threads)}
    command = [*program, str(path), str(base), *limit.values()]
    chosen = cores.get() if cores else None
    try:
        if not stop.exists():
            code = _exit_code(command, os.environ | limit, folder.path / "log.txt", stop, chosen)
            if code and folder.result() is None:
                folder.fail("KILLED", f"The process {_end(code)}; see log.txt in its folder.")
    except OSError as error:
        folder.fail("KILLED", f"The process could not be started: {error}")
    finally:
        if cores and chosen:
            cores.put(chosen)
    return path.name


def _exit_code(
    command: list[str], env: dict[str, str], log: Path, stop: Path, cores: set[int] | None
) -> int:
    """Run a process until it exits and return its code; zero if it was requested to stop."""
    stopped = False
    with (
        log.open("ab") as output,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=env,
            # Ctrl-C in the terminal is for the sweep, which then requests its runs to stop.
            start_new_session=True,
        ) as process,
    ):
        if cores:
            with contextlib.suppress(ProcessLookupError):  # it has already exited
                os.sched_setaffinity(process.pid, cores)
        while process.poll() is None:
            with contextlib.suppress(FileNotFoundError):
                if stop.read_text() == "kill":
                    process.kill()
                elif not stopped:
                    process.terminate()
                stopped = True
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_INTERVAL)
    return 0 if stopped else process.returncode


def _end(code: int) -> str:
    if code > 0:
        return f"exited with code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
    return f"was killed by {name}{' (out of memory?)' if name == 'SIGKILL' else ''}"


def main(path: str, base: str, threads: str | None = None) -> None:
    """Do one run in this process, and write its result or its error into its folder."""
    threading.Thread(target=_exit_with_supervisor, daemon=True).start()
    if threads is not None and hasattr(os, "sched_setaffinity"):
        limit_threads(int(threads))
    folder = RunFolder(Path(path))
    try:
        with locked(folder.path / "run.lock"):
            try:
                folder.write("result.json", _train(folder, Path(base)))
            except Exception as error:
                traceback.print_exc()
                first_line = (str(error).strip().splitlines() or [""])[0]
                folder.fail("ERROR", f"{type(error).__name__}: {first_line}".removesuffix(": "))
    except Locked as holder:
        print(f"This run is already being computed by {holder}.", file=sys.stderr)


def _exit_with_supervisor() -> None:
    """Send SIGTERM to this process when standard input ends.

    The supervisor holds the other end of the pipe open for as long as it lives.
    """
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _train(folder: RunFolder, base: Path) -> dict[str, Any]:
    """Do the run of a folder, write its model, and return its result."""
    jax.config.update("jax_enable_x64", True)
    run = folder.run()
    problem = run.problem(base)
    try:
        density = learn(
            *(problem.sde, problem.starts, problem.horizon),
            key=jr.key(run.seed),
            preset=run.preset,
            params=problem.params,
            start_time=problem.start_time,
            progress=True,
            certify=run.certify,
            checkpoint=folder.path / "checkpoint",
            memory_limit=run.memory_limit,
            **run.settings,
        )
    except TrainingFailed as failure:
        density = failure.density
    density = with_errors(density, problem.exact, run.seed, run.error_starts)
    failed, provenance = density.status.failed, density.provenance
    density.save(folder.path / ("partial.dflow" if failed else "model.dflow"))
    errors = [row["squared_l2"] for row in provenance.errors]
    bounds = [row["bound"] for row in provenance.certificate]
    return {
        "status": density.status.name,
        "failed": failed,
        "message": density.status.value if failed else "",
        "horizon": density.horizon,
        "asked_horizon": provenance.plan.horizon,
        "seconds": round(provenance.seconds, 2),
        "steps": len(provenance.history),
        "parameters": int(density.trajectory.thetas.shape[1]),
        "error": errors[-1] if errors else None,
        "largest_error": max(errors, default=None),
        "certificate": fmean(bounds) if bounds else None,
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
