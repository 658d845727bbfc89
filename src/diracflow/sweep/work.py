"""The process of one run: learn, judge, say how it ended.

Started by `launch` as `python -m diracflow.sweep.work FOLDER BASE`. It has a process of its own
so that its death, for want of memory or by a crash of a library, is a row of the table and not the
end of the others. It ends, keeping its training, on SIGTERM and when whoever started it is gone.
"""

import argparse
import os
import signal
import sys
import threading
import traceback
from pathlib import Path
from statistics import fmean
from typing import Any


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("base", type=Path)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--cores", type=int, nargs="*")
    options = parser.parse_args(arguments)
    threading.Thread(target=_follow_starter, daemon=True).start()
    # Before JAX makes its threads.
    _compute_on(options.cores, options.threads)
    from ..storage.lock import Locked, locked
    from .run_folder import RunFolder

    folder = RunFolder(options.folder)
    try:
        with locked(folder.lock):
            work(folder, options.base)
    except Locked as holder:
        print(f"This run is under way, by {holder}.", file=sys.stderr)


def work(folder: Any, base: Path) -> None:
    """Do the run of a folder; whatever is raised becomes its result."""
    from .run_folder import ERROR

    try:
        result = _done(folder, base)
    except Exception as error:
        traceback.print_exc()
        said = str(error).strip().splitlines()
        message = f"{type(error).__name__}: {said[0] if said else ''}".removesuffix(": ")
        result = {"status": ERROR, "failed": True, "message": message}
    folder.finish(result)


def _done(folder: Any, base: Path) -> dict[str, Any]:
    import jax
    import jax.random as jr

    from ..learning import TrainingFailed, learn
    from .sweep_run import problem_of

    jax.config.update("jax_enable_x64", True)
    run = folder.run()
    problem = problem_of(run, base)
    try:
        density = learn(
            *(problem.sde, problem.starts, problem.horizon),
            key=jr.key(run.seed),
            preset=run.preset,
            params=problem.params,
            start_time=problem.start_time,
            progress=True,
            certify=run.certify,
            checkpoint=folder.checkpoint,
            memory_limit=run.memory_limit,
            **run.settings,
        )
    except TrainingFailed as failure:
        density = failure.density
    errors = _errors(density, problem.exact, run)
    density = density.with_facts(errors=tuple(errors))
    density.save(folder.path / ("partial.dflow" if density.status.failed else "model.dflow"))
    return _result(density, errors)


def _errors(density: Any, exact: Any, run: Any) -> list[dict[str, Any]]:
    """Against the exact density, if it is known."""
    import jax.random as jr

    from ..evaluate.study import study

    if exact is None or density.horizon <= 0 or not run.error_starts:
        return []
    return study(density, exact, key=jr.key(run.seed + 1), starts=run.error_starts).summary()


def _result(density: Any, errors: list[dict[str, Any]]) -> dict[str, Any]:
    bounds = [row["bound"] for row in density.facts.certificate]
    squares = [row["squared_l2"] for row in errors]
    failed = density.status.failed
    return {
        "status": density.status.name,
        "failed": failed,
        "message": density.status.value if failed else "",
        "horizon": density.horizon,
        "asked_horizon": density.facts.asked_horizon,
        "seconds": round(density.facts.seconds, 2),
        "steps": len(density.facts.history),
        "parameters": int(density.trajectory.thetas.shape[1]),
        "error": squares[-1] if errors else None,
        "largest_error": max(squares) if errors else None,
        "certificate": fmean(bounds) if bounds else None,
    }


def _compute_on(cores: list[int] | None, threads: int | None) -> None:
    from ..training.threads import limit_threads

    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
    if threads is not None:
        limit_threads(threads)


def _follow_starter() -> None:
    """End when the standard input does, which the starter holds open as long as it lives."""
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
