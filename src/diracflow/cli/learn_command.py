"""`diracflow learn`: learn the density of a user's SDE."""

import shlex
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.random as jr

from ..density.learned import LearnedDensity
from ..learning.interface import learn
from ..learning.outcome import TrainingFailed
from ..models.catalogue import Model, model, named_object
from ..planning.plan import Plan
from ..planning.prepare import plan
from ..planning.settings import settings_for
from ..sde.sde import SDE
from ..training.checkpoint_file import holds_checkpoint
from ..training.multiprocess import ProcessLost
from .inputs import parse_law, parse_laws, prepare_jax
from .options import ProblemOptions, TrainingOptions, changed_settings
from .tables import require_writable
from .terminal import Exit, Stopped, stoppable


def learn_file(
    target: str,
    out: Path,
    problem: ProblemOptions,
    preset: str,
    training: TrainingOptions,
    *,
    quiet: bool,
) -> dict[str, Any]:
    """Learn a density, write it to a file, and return a summary.

    Only the first of several processes writes the file; the others return an empty dictionary. A
    failed training is written to `partial-NAME` in the same folder.
    """
    require_writable(out, make_folders=True)
    prepare_jax()
    changes = changed_settings(training.settings)
    settings_for(preset, **changes)  # raises an error before anything is computed
    arguments = _problem(named_object(target), problem)
    out.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    options = {"preset": preset, "progress": not quiet, **training.resources(), **changes}
    density = learned(arguments, training.seed, **options)
    if density is None:
        return {}
    if density.status.failed:  # it must not replace an earlier model
        out = out.with_name(f"partial-{out.name}")
    density.save(out)
    return {
        "file": str(out),
        "status": density.status.name,
        "message": density.status.value,
        "failed": density.status.failed,
        "horizon": density.horizon,
        "seconds": round(time.monotonic() - began, 1),
        "certificate": list(density.provenance.certificate),
    }


def learned(
    problem: dict[str, Any], seed: int, checkpoint: Path | None = None, **options: Any
) -> LearnedDensity | None:
    """Return the learned density, or `None` in all but the first of several processes.

    A failed training returns the density up to the time that it reached. `problem` and `options`
    are arguments of `diracflow.learn`.
    """

    def message(cause: str) -> str:
        if checkpoint is None:
            return f"{cause}. Use `--checkpoint DIR` to make the training resumable."
        command = shlex.join(["diracflow", *sys.argv[1:]])
        if holds_checkpoint(checkpoint):
            return f"{cause}. The training is saved in {checkpoint}; to resume it: {command}"
        return f"{cause} before the first checkpoint; to start again: {command}"

    try:
        with stoppable(message):
            density = learn(**problem, key=jr.key(seed), checkpoint=checkpoint, **options)
    except ProcessLost as lost:
        raise Stopped(message(str(lost).rstrip(".")), Exit.LOST) from lost
    except TrainingFailed as failure:
        density = failure.density
    # The processes disconnect here because only the first of them does what follows.
    first = jax.process_index() == 0
    if jax.distributed.is_initialized():
        jax.distributed.shutdown()
    return density if first else None


def problem_of(found: Model) -> dict[str, Any]:
    """Return SDE, laws and horizon of a model as arguments of `learn`."""
    names = ("sde", "starts", "horizon", "params", "start_time")
    return {name: getattr(found, name) for name in names}


def plan_of_file(
    target: str, problem: ProblemOptions, preset: str, changes: dict[str, Any], built_in: Any
) -> Plan:
    """Return the plan of a training, for an SDE in a file or a built-in model."""
    prepare_jax()
    settings_for(preset, **changes)  # raises an error before anything is computed
    found = model(target) if target in built_in else named_object(target)
    return plan(**_problem(found, problem), preset=preset, **changes)


def _problem(found: SDE | Model, options: ProblemOptions) -> dict[str, Any]:
    """Return SDE, laws and horizon as arguments of `learn`; options replace those of a `Model`."""
    problem: dict[str, Any] = problem_of(found) if isinstance(found, Model) else {"sde": found}
    if options.starts is not None:
        problem["starts"] = parse_law(options.starts)
    if options.horizon is not None:
        problem["horizon"] = options.horizon
    if options.params is not None:
        problem["params"] = parse_laws("--params", options.params)
    if options.start_time is not None:
        try:
            problem["start_time"] = float(options.start_time)
        except ValueError:
            problem["start_time"] = parse_law(options.start_time)
    if "starts" not in problem:
        raise ValueError(
            "An SDE needs `--starts`, the law of its start points, such as "
            """'{"law": "Normal", "mean": 0, "std": 1}'."""
        )
    if "horizon" not in problem:
        raise ValueError("An SDE needs `--horizon`, the longest time since the start.")
    return problem
