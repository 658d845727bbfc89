"""`diracflow run`: learn a built-in model, evaluate its errors, draw the figures of the paper."""

import json
import time
from pathlib import Path
from typing import Any

import jax
import jax.random as jr
import numpy as np
from matplotlib.figure import Figure

from .. import view
from ..density.learned import LearnedDensity
from ..evaluate.errors import with_errors
from ..learning.outcome import TrainingFailed
from ..models.catalogue import Model, model
from ..planning.ansatz_builder import idle_dim_for
from ..planning.settings import settings_for
from ..transition.transition_density import AbstractTransitionDensity
from ..uses.green import propagate
from ..view.axes import box_around
from ..view.report import drawn_figures, written_report
from .inputs import prepare_jax
from .learn_command import learned, problem_of
from .model_commands import bound_lines, error_lines
from .tables import require_writable
from .terminal import emit, talk


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

    Only the first of several processes writes files; the others return an empty dictionary. Errors
    are averaged over `starts` start points. `changes` are settings that differ from the preset, and
    `resources` further arguments of `diracflow.learn`.
    """
    prepare_jax()
    # Raise errors before anything is written or computed.
    problem = model(name)
    idle_dim_for(problem.sde.dim, settings_for(preset, **changes))
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
    file = out / "model.dflow"
    if density.status.failed:
        talk(f"diracflow: {TrainingFailed(density)}")
        file = out / "partial.dflow"  # it must not replace an earlier model
    density.save(file)
    plan = density.provenance.plan
    why_source = plan.reasons.get("source", "set by the user")
    say(f"Learned in {seconds:.0f} s. Source: {plan.source} ({why_source}).")
    if problem.exact is not None:
        say(f"Comparing with the exact density at {starts} starts.")
        density = with_errors(density, problem.exact, seed, starts)
        density.save(file)
    compared = time.monotonic() - began - seconds
    run = {"model": name, "preset": preset, "settings": changes, "seed": seed}
    run |= {"learn_seconds": seconds, "source": plan.source, "why_source": why_source}
    run |= {"starts": starts if density.provenance.errors else 0}
    report: dict[str, Any] = {**run, **_described(density)}
    (out / "report.json").write_text(json.dumps(report, indent=2, allow_nan=False) + "\n")
    rows = report["errors"]
    if not quiet:
        emit("\n".join(error_lines(rows)) if rows else _bounds(report["certificate"], file))
    names = _draw(density, problem, file)
    if not quiet:
        emit(f"Report, model and figures are in {out}: {', '.join(('report.json', *names))}")
        emit(_times(density, seconds, compared, time.monotonic() - began))
    return report


def _times(density: LearnedDensity, learned: float, compared: float, total: float) -> str:
    """Return the wall time of each part, in one line."""
    history, stepped = density.provenance.history, density.provenance.seconds
    first = history[0].seconds if history else stepped
    parts = {
        "plan, compilation and first step": first,
        "other steps": stepped - first,
        "error bound": learned - stepped,
        "comparison with the exact density": compared,
        "figures and report": total - learned - compared,
    }
    shown = ", ".join(f"{name} {max(spent, 0.0):.0f} s" for name, spent in parts.items())
    return f"Time: {shown}; {total:.0f} s in all."


def _described(density: LearnedDensity) -> dict[str, Any]:
    provenance = density.provenance
    return {
        "status": density.status.name,
        "failed": density.status.failed,
        "horizon": density.horizon,
        "parameters": int(density.trajectory.thetas.shape[1]),
        "steps": len(provenance.history),
        "laws": density.scope.describe(),
        **{n: list(getattr(provenance, n)) for n in ("errors", "certificate", "boundaries")},
    }


def _draw(density: LearnedDensity, problem: Model, file: Path) -> list[str]:
    """Write page and figures into the folder of the model file, and return the names of files."""
    drawn = drawn_figures(density, problem.exact)
    figures = {name: figure for name, (figure, _) in drawn.items()}
    of_paper = (problem.name, density.dim) == ("benes", 2) and density.horizon > 0
    if of_paper and problem.exact is not None:
        figures |= paper_figures(density, problem.exact)
    for name, figure in figures.items():
        figure.savefig(file.with_name(f"{name}.png"))
    written_report(density, drawn, file.name, file.with_name("report.html"))
    return [file.name, "report.html", *(f"{name}.png" for name in figures)]


def _bounds(rows: list[dict[str, Any]], file: Path) -> str:
    if not rows:  # the time limit ended the training
        return (
            "No exact density is known, and there was no time for an error bound; compute it with "
            f"`diracflow check {file}`."
        )
    return "\n".join(["No exact density is known.", *bound_lines(rows)])


def paper_figures(density: LearnedDensity, exact: AbstractTransitionDensity) -> dict[str, Figure]:
    """Return the paper's figures of the Beneš process in the plane."""
    centre, noise = np.zeros(2), np.asarray(jr.normal(jr.key(0), (3000, 2)))
    return {
        "joint": view.joint(density, exact, density.horizon, np.array([[0.0, 0.0], [1.5, -1.0]])),
        "moulding": view.moulding(density, density.reach, centre, noise),
        "conditional": view.conditional(density, exact, centre, density.horizon),
        "mixture": mixture_figure(density, exact, density.horizon),
    }


def mixture_figure(
    density: LearnedDensity, exact: AbstractTransitionDensity, t: float, count: int = 1750
) -> Figure:
    """Return the paper's figure of a Gaussian mixture as initial law, propagated by its draws."""
    draws = mixture_draws(count)
    learned, true = propagate(density, draws, t), propagate(exact, draws, t)
    cloud = np.asarray(true.sample(jr.key(2), (2000,)))
    row = (f"mixture start, $t={t:g}$", box_around(cloud), true.prob, learned.prob)
    return view.comparison([row], grid=81)  # each pixel averages over all draws


def mixture_draws(count: int) -> np.ndarray:
    r"""Return draws of $\tfrac14 N((1,1), 0.1^2) + \tfrac34 N((-\tfrac34,-\tfrac34), 0.5^2)$."""
    rng = np.random.default_rng(0)
    near = rng.random(count) < 0.25
    noise = rng.normal(size=(count, 2))
    return np.where(near[:, None], 1.0 + 0.1 * noise, -0.75 + 0.5 * noise)
