"""`diracflow learn`: learn an SDE of the user's own."""

import time
from pathlib import Path
from typing import Any

import jax.random as jr

from ..learning import TrainingFailed, learn
from ..models.catalogue import Model
from ..planning.settings import settings_for
from ..sde.laws import AbstractLaw
from .output_paths import require_target
from .preparation import prepare_jax
from .stopping import left_to_the_first, stoppable
from .user_problem import named_object, read_law, read_laws, read_number_or_law


def learn_file(
    target: str,
    out: Path,
    laws: tuple[str | None, str | None, str | None],
    horizon: float | None,
    preset: str,
    seed: int,
    changes: dict[str, Any],
    *,
    quiet: bool,
    checkpoint: Path | None = None,
    memory_limit: float | None = None,
    devices: int | None = None,
    chunk: int | None = None,
) -> dict[str, Any]:
    """Everything `diracflow learn` does; returns what it says, or nothing if another process does.

    `laws` are those of starts, of parameters and of the start time; `checkpoint` is the directory
    that keeps the training.
    """
    require_target(out)
    prepare_jax()
    settings_for(preset, **changes)  # mistakes are found before anything is computed
    found = named_object(target)
    sde = found.sde if isinstance(found, Model) else found
    law, until = _law(found, laws[0]), _horizon(found, horizon)
    out.parent.mkdir(parents=True, exist_ok=True)  # what cannot be written is found before training
    began = time.monotonic()
    settings: dict[str, Any] = {"preset": preset, "progress": not quiet}
    settings |= {"memory_limit": memory_limit, "devices": devices, "chunk": chunk}
    settings |= {**changes, **_others(found, *laws[1:])}
    try:
        with stoppable(checkpoint):
            density = learn(sde, law, until, key=jr.key(seed), checkpoint=checkpoint, **settings)
    except TrainingFailed as failure:
        density = failure.density
        # It must not take the place of an earlier model.
        out = out.with_name(f"partial-{out.name}")
    if not left_to_the_first():
        return {}
    density.save(out)
    return {
        "file": str(out),
        "status": density.status.name,
        "message": density.status.value,
        "failed": density.status.failed,
        "horizon": density.horizon,
        "seconds": round(time.monotonic() - began, 1),
        "certificate": list(density.facts.certificate),
    }


def _law(found: Any, starts: str | None) -> AbstractLaw:
    if starts is None:
        if isinstance(found, Model):
            return found.starts
        raise ValueError(
            "An SDE needs `--starts`, the law of its start points, such as "
            """'{"law": "Normal", "mean": 0, "std": 1}'."""
        )
    return read_law(starts)


def _others(found: Any, params: str | None, start_time: str | None) -> dict[str, Any]:
    """Parameters and start time of a model, unless others are given."""
    own = isinstance(found, Model)
    chosen: dict[str, Any] = {"params": found.params, "start_time": found.start_time} if own else {}
    if params is not None:
        chosen["params"] = read_laws("--params", params)
    if start_time is not None:
        chosen["start_time"] = read_number_or_law(start_time)
    return chosen


def _horizon(found: Any, horizon: float | None) -> float:
    if horizon is not None:
        return horizon
    if isinstance(found, Model):
        return found.horizon
    raise ValueError("An SDE needs `--horizon`, the longest time since the start.")
