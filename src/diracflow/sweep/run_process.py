"""The process of one run: train, measure the error, write the result.

The supervisor starts it as `python -m diracflow.sweep.run_process FOLDER BASE`. Each run has a
separate process: if it crashes or runs out of memory, the other runs continue. It saves its
checkpoint and exits on SIGTERM, and also when the process that started it has died.
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

import jax
import jax.random as jr

from ..evaluate.errors import study
from ..learning import TrainingFailed, learn
from ..storage.files import Locked, locked
from ..training.threads import limit_threads
from .sweep_runs import RunFolder


def main() -> None:
    """Run the process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("base", type=Path)
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    threading.Thread(target=_exit_with_supervisor, daemon=True).start()
    if options.threads is not None and hasattr(os, "sched_setaffinity"):
        limit_threads(options.threads)
    folder = RunFolder(options.folder)
    try:
        with locked(folder.path / "run.lock"):
            try:
                folder.write("result.json", _train(folder, options.base))
            except Exception as error:
                traceback.print_exc()
                first_line = (str(error).strip().splitlines() or [""])[0]
                folder.fail("ERROR", f"{type(error).__name__}: {first_line}".removesuffix(": "))
    except Locked as holder:
        print(f"This run is already being computed by {holder}.", file=sys.stderr)


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
    rows = []
    if problem.exact is not None and density.horizon > 0 and run.error_starts:
        key = jr.key(run.seed + 1)
        rows = study(density, problem.exact, key=key, starts=run.error_starts).summary()
    density = density.with_provenance(errors=tuple(rows))
    failed, provenance = density.status.failed, density.provenance
    density.save(folder.path / ("partial.dflow" if failed else "model.dflow"))
    errors = [row["squared_l2"] for row in rows]
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


def _exit_with_supervisor() -> None:
    """Send SIGTERM to this process when standard input ends.

    The supervisor holds the other end of the pipe open for as long as it lives.
    """
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
