"""`diracflow run`: learn a built-in model, evaluate its errors, draw its figures."""

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
from ..learning import TrainingFailed
from ..models.catalogue import Model, model
from ..planning.ansatz_builder import idle_dim_for
from ..planning.settings import settings_for
from .info_command import bound_lines
from .inputs import prepare_jax
from .learn_command import learned, problem_of
from .results import require_writable
from .run_figures import draw_figures
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
    **resources: Any,
) -> dict[str, Any]:
    """Learn a built-in model, write model, report and figures, and return the report.

    Only the first of several processes writes files; the others return an empty dictionary.

    **Arguments:**

    - `name`: of the built-in model.
    - `preset`, `seed`, `changes`: the preset, its changed settings, and the seed of the key.
    - `out`: the folder for all files.
    - `starts`: number of start points over which errors are averaged.
    - `quiet`: print nothing.
    - `checkpoint`, `resources`: further arguments of `diracflow.learn`.
    """
    prepare_jax()
    # Raise errors before anything is written or computed.
    problem = model(name)
    idle_dim_for(problem.sde.dim, settings_for(preset, **changes))
    if starts < 1:
        raise ValueError(f"`--starts` must be at least 1; got {starts}.")
    out.mkdir(parents=True, exist_ok=True)
    require_writable(out / "model.dflow")
    say = talk if not quiet and jax.process_index() == 0 else lambda text: None
    say(f"Learning {name} (preset {preset}) up to t = {problem.horizon:g}.")
    began = time.monotonic()
    options = {"preset": preset, "progress": not quiet, **resources, **changes}
    density = learned(problem_of(problem), seed, checkpoint, **options)
    seconds = round(time.monotonic() - began, 1)
    if density is None:
        return {}
    file = "model.dflow"
    if density.status.failed:
        talk(f"diracflow: {TrainingFailed(density)}")
        file = "partial.dflow"  # it must not replace an earlier model
    density.save(out / file)
    say(f"Learned in {seconds:.0f} s. {_source_text(density)}")
    result = _errors(density, problem, seed, starts, say)
    if result is not None:
        density = density.with_provenance(errors=tuple(result.summary()))
        density.save(out / file)
    run = {"model": name, "preset": preset, "settings": changes, "seed": seed}
    report = {**run, "learn_seconds": seconds, **_report(density, result)}
    _write(density, problem, result, report, out, file, quiet)
    return report


def _source_text(density: LearnedDensity) -> str:
    plan = density.provenance.plan
    return f"Source: {plan.source} ({plan.reasons.get('source', 'set by the user')})."


def _errors(
    density: LearnedDensity,
    problem: Model,
    seed: int,
    starts: int,
    say: Callable[[str], object],
) -> Study | None:
    """Return the errors against the exact density, if it is known."""
    if problem.exact is None:
        return None
    say(f"Comparing with the exact density at {starts} starts.")
    return study(density, problem.exact, key=jr.key(seed + 1), starts=starts)


def _report(density: LearnedDensity, result: Study | None) -> dict[str, Any]:
    return {
        "source": density.provenance.plan.source,
        "why_source": density.provenance.plan.reasons.get("source", "set by the user"),
        "status": density.status.name,
        "failed": density.status.failed,
        "horizon": density.horizon,
        "parameters": int(density.trajectory.thetas.shape[1]),
        "steps": len(density.provenance.history),
        "starts": 0 if result is None else len(result.starts),
        "laws": density.scope.describe(),
        "errors": [] if result is None else result.summary(),
        "certificate": list(density.provenance.certificate),
        "boundaries": list(density.provenance.boundaries),
    }


def _write(
    density: LearnedDensity,
    problem: Model,
    result: Study | None,
    report: dict[str, Any],
    out: Path,
    file: str,
    quiet: bool,
) -> None:
    """Write report and figures into the folder `out`, and print a table of the errors."""
    (out / "report.json").write_text(json.dumps(report, indent=2, allow_nan=False) + "\n")
    if not quiet:
        bounds = report["certificate"]
        emit(_bounds(bounds, out / file) if result is None else _table(report["errors"]))
    figures = draw_figures(density, problem, result, out)
    view.report(density, problem.exact, file=file, path=out / "report.html")
    if not quiet:
        written = ", ".join(("report.html", file, "report.json", *figures))
        emit(f"Report, model and figures are in {out}: {written}")


def _bounds(rows: list[dict[str, Any]], file: Path) -> str:
    if not rows:  # the time limit ended the training
        return (
            "No exact density is known, and there was no time for an error bound; compute it with "
            f"`diracflow check {file}`."
        )
    return "\n".join(["No exact density is known.", *bound_lines(rows)])


def _table(rows: list[dict[str, Any]]) -> str:
    lines = ["       t    rel. sq. L2  (source)        KL  (source)        TV  (source)"]
    lines += [
        f"{row['t']:8.3g}    {row['squared_l2']:11.2e}  {row['source_squared_l2']:8.1e}"
        f"  {row['kl']:8.1e}  {row['source_kl']:8.1e}"
        f"  {row['total_variation']:8.1e}  {row['source_total_variation']:8.1e}"
        for row in rows
    ]
    lines.append("Averages over the starts. (source): errors of the Gaussian source alone.")
    return "\n".join(lines)
