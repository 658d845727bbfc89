"""`diracflow run`: learn a built-in model, judge it, draw it."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.random as jr

from .. import view
from ..density.learned import LearnedDensity
from ..evaluate.study import Study, study
from ..learning import TrainingFailed, learn
from ..models.catalogue import Model, model
from ..planning.masks import idle_dim_for
from ..planning.settings import settings_for
from .output_paths import require_target
from .preparation import prepare_jax
from .run_figures import draw_figures
from .stopping import left_to_the_first, stoppable
from .streams import emit, talk


def run_model(
    name: str,
    preset: str,
    out: Path,
    seed: int,
    starts: int,
    changes: dict[str, Any],
    *,
    quiet: bool = False,
    checkpoint: Path | None = None,
    memory_limit: float | None = None,
    devices: int | None = None,
    chunk: int | None = None,
) -> dict[str, Any]:
    """Everything `diracflow run` does; returns the report it also writes, unless another does."""
    prepare_jax()
    # Mistakes are found before anything is written or computed.
    problem = model(name)
    idle_dim_for(problem.sde.dim, settings_for(preset, **changes))
    if starts < 1:
        raise ValueError(f"`--starts` must be at least 1; got {starts}.")
    out.mkdir(parents=True, exist_ok=True)
    require_target(out / "model.dflow")
    say = talk if not quiet and jax.process_index() == 0 else lambda text: None
    result_line = (lambda text: None) if quiet else emit
    say(f"Learning {name} (preset {preset}) up to t = {problem.horizon:g}.")
    began = time.monotonic()
    options = {
        **changes,
        "progress": not quiet,
        "checkpoint": checkpoint,
        "memory_limit": memory_limit,
        "devices": devices,
        "chunk": chunk,
    }
    with stoppable(checkpoint):
        density = _learned(problem, preset, seed, options)
    learned_in = time.monotonic() - began
    if not left_to_the_first():
        return {}
    # What a failed training reached must not take the place of an earlier model.
    file = "partial.dflow" if density.status.failed else "model.dflow"
    density.save(out / file)
    say(f"Learned in {learned_in:.0f} s. {_source_text(density)}")
    result = _judged(density, problem, seed, starts, say)
    if result is not None:
        density = density.with_facts(errors=tuple(result.summary()))
        density.save(out / file)
    report = _report(problem, preset, seed, changes, density, learned_in, result)
    (out / "report.json").write_text(json.dumps(report, indent=2, allow_nan=False) + "\n")
    exact = result is not None
    result_line(_table(report["errors"]) if exact else _bounds(report["certificate"], out / file))
    names = draw_figures(density, problem, result, out)
    view.report(density, problem.exact, file=file, path=out / "report.html")
    written = ", ".join(("report.html", file, "report.json", *names))
    result_line(f"Report, model and figures are in {out}: {written}")
    return report


def _learned(problem: Model, preset: str, seed: int, options: dict[str, Any]) -> LearnedDensity:
    try:
        return learn(
            problem.sde,
            problem.starts,
            problem.horizon,
            key=jr.key(seed),
            params=problem.params,
            start_time=problem.start_time,
            preset=preset,
            **options,
        )
    except TrainingFailed as failure:
        # The part that was learned is still worth looking at; the report names the status.
        talk(f"diracflow: {failure}")
        return failure.density


def _source_text(density: LearnedDensity) -> str:
    return f"Source: {density.facts.settings.source} ({density.facts.why_source})."


def _judged(
    density: LearnedDensity,
    problem: Model,
    seed: int,
    starts: int,
    say: Callable[[str], object],
) -> Study | None:
    """Errors against the exact density, if there is one."""
    if problem.exact is None:
        return None
    say(f"Comparing with the exact density at {starts} starts.")
    return study(density, problem.exact, key=jr.key(seed + 1), starts=starts)


def _report(
    problem: Model,
    preset: str,
    seed: int,
    changes: dict[str, Any],
    density: LearnedDensity,
    learned_in: float,
    result: Study | None,
) -> dict[str, Any]:
    return {
        "model": problem.name,
        "preset": preset,
        "settings": changes,
        "seed": seed,
        "source": density.facts.settings.source,
        "why_source": density.facts.why_source,
        "status": density.status.name,
        "failed": density.status.failed,
        "horizon": density.horizon,
        "parameters": int(density.trajectory.thetas.shape[1]),
        "steps": len(density.facts.history),
        "learn_seconds": round(learned_in, 1),
        "starts": 0 if result is None else len(result.starts),
        "laws": density.scope.describe(),
        "errors": [] if result is None else result.summary(),
        "certificate": list(density.facts.certificate),
        "boundaries": list(density.facts.boundaries),
    }


def _bounds(rows: list[dict[str, Any]], file: Path) -> str:
    if not rows:  # a limit of time ended the training
        return (
            "No exact density is known, and there was no time for a certificate; compute it with "
            f"`diracflow check {file}`."
        )
    lines = ["No exact density is known. Total variation to the truth is at most (stderr):"]
    lines += [
        f"{row['t']:8.3g}  {row['start']:<7} {row['bound']:8.1e}  ({row['stderr']:.0e})"
        for row in rows
    ]
    return "\n".join(lines)


def _table(rows: list[dict[str, Any]]) -> str:
    lines = ["       t    rel. sq. L2  (source)        KL  (source)        TV  (source)"]
    lines += [
        f"{row['t']:8.3g}    {row['squared_l2']:11.2e}  {row['source_squared_l2']:8.1e}"
        f"  {row['kl']:8.1e}  {row['source_kl']:8.1e}"
        f"  {row['total_variation']:8.1e}  {row['source_total_variation']:8.1e}"
        for row in rows
    ]
    lines.append(
        "Means over the starts; (source): the Gaussian that the flow starts from, before learning."
    )
    return "\n".join(lines)
