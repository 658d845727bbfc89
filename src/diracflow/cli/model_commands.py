"""The commands `info`, `check` and `report`, which describe and test a model file."""

from pathlib import Path
from typing import Any

import jax.random as jr
import numpy as np

from ..density.description import BOUNDS, ERRORS, WHERE, problem_facts, training_facts
from ..density.learned import LearnedDensity
from ..density.summary import certificate_table, described, landmarks, split
from ..evaluate.consistency import agreement_with_paths, chapman_kolmogorov
from ..evaluate.errors import with_errors
from ..evaluate.path_reference import measured_distance
from ..planning.plan import Plan
from .inputs import load_model, load_with_exact
from .tables import require_writable
from .terminal import text_table

# Times at which a model is checked, as fractions of the horizon.
_SHARES = (0.1, 0.4, 1.0)
# Largest z-score that passes: a correct model exceeds it once in several thousand checks.
_Z = 4.0
# Simulated paths of the reference.
_PATHS = 2**14
# Largest relative difference of densities between two half steps and one step, beyond noise.
_DISCREPANCY = 0.05
# Columns of the table of tests.
_TESTS = (
    *(*WHERE, ("TV at most", "bound", ".1e"), ("(s.e.)", "bound_stderr", ".0e")),
    *(("estimate", "estimate", ".1e"), ("measured", "measured", ".1e")),
    *(("(s.e.)", "measured_stderr", ".0e"), ("half steps", "half_steps", ".1e")),
    *(("(s.e.)", "half_steps_stderr", ".0e"), ("mean z", "mean_z", ".1f")),
    *(("cov. z", "covariance_z", ".1f"), ("energy z", "energy_z", ".1f"), ("", "mark", "")),
)


def info_text(header: dict[str, Any], path: str) -> str:
    """Return the description of a model file from its header."""
    facts = {"file": path, **problem_facts(header), **training_facts(header)}
    width = max(map(len, facts))
    parts = [f"{name:<{width}}  {value}" for name, value in facts.items()]
    parts += ["", str(Plan(**header["plan"]))]
    for name, code in header["sde"]["text"].items():
        parts += ["", f"{name}:", code]
    missing = ["No error bound was computed; `diracflow check` computes one."]
    parts += ["", *(bound_lines(header["certificate"]) if header["certificate"] else missing)]
    if header["errors"]:
        parts += ["", *error_lines(header["errors"])]
    return "\n".join(parts)


def bound_lines(rows: list[dict[str, Any]]) -> list[str]:
    """Return the error bounds of a certificate as lines of text."""
    title = "Upper bounds on the total variation distance to the true density, from two starts:"
    return [title, *text_table(BOUNDS, rows)]


def error_lines(rows: list[dict[str, Any]]) -> list[str]:
    """Return errors against the exact density as lines of text."""
    title = "Errors against the exact density, and those of the Gaussian source alone (source):"
    return [title, *text_table(ERRORS, rows), "Averages over the starts."]


def check_model(path: Path, sde: str | None, limit: float, seed: int) -> dict[str, Any]:
    """Return all test results of `diracflow check`, and whether the model passed."""
    if not 0 < limit <= 1:
        raise ValueError(
            f"`--limit` is a total variation distance and must lie in (0, 1]; got {limit:g}."
        )
    density, _ = load_model(path, sde)
    times = density.horizon * np.array(_SHARES)
    starts = landmarks(density.scope.law)
    rows = [
        _row(density, jr.fold_in(jr.key(seed), 100 * i + j), float(t), name, g, limit)
        for i, t in enumerate(times)
        for j, (name, g) in enumerate(starts.items())
    ]
    return {
        "file": str(path),
        "status": density.status.name,
        "limit": limit,
        "rows": rows,
        "passed": all(row["passed"] for row in rows),
    }


def _row(
    density: LearnedDensity, key: Any, t: float, name: str, g: np.ndarray, limit: float
) -> dict[str, Any]:
    """Return the results of all tests at one time and start."""
    bound_key, half_key, path_key = jr.split(key, 3)
    distance_key = jr.fold_in(key, 3)
    x0, conditioning = split(density, g)
    estimated = density.provenance.plan.standardised  # not for the paper's flow
    bound = density.certificate(bound_key, t, x0, **conditioning, estimate=estimated)
    near = bound.estimate
    paths = agreement_with_paths(density, path_key, t, x0, **conditioning)
    measured = measured_distance(density, t, x0, key=distance_key, paths=_PATHS, **conditioning)
    half: dict[str, Any] = {"half_steps": None, "half_steps_stderr": None, "excess": None}
    try:
        # Longer times are composed of steps up to `reach`, so those steps are tested.
        found = chapman_kolmogorov(density, half_key, min(t, density.reach), x0, **conditioning)
        half["half_steps"] = found.discrepancy
        half["half_steps_stderr"] = float(np.sqrt(found.stderr))
        half["excess"] = found.squared - _Z * found.stderr
    except ValueError as error:  # coefficients depend on time, or t/2 is out of range
        half["why"] = str(error)
    row = {
        "t": t,
        "start": name,
        **described(density, g),
        "bound": float(bound.bound),
        "bound_stderr": float(bound.stderr),
        "estimate": None if near is None else float(near.value),
        "estimate_stderr": None if near is None else float(near.stderr),
        "measured": measured.value,
        "measured_stderr": measured.stderr,
        **half,
        "mean_z": paths.mean_z,
        "covariance_z": paths.covariance_z,
        "energy_z": paths.energy_z,
    }
    tests = {
        # The bound is an upper one. A measured distance within the limit says the same.
        "distance": min(row["bound"], measured.value + _Z * measured.stderr) <= limit,
        "half steps": row["excess"] is None or row["excess"] <= _DISCREPANCY**2,
        "mean": row["mean_z"] <= _Z,
        "covariance": row["covariance_z"] <= _Z,
        "energy": row["energy_z"] <= _Z,
    }
    failed = [test for test, passed in tests.items() if not passed]
    return {**row, "failed": failed, "passed": not failed}


def check_text(report: dict[str, Any]) -> str:
    """Return the test results as a table."""
    marks = ["" if row["passed"] else f"<- {', '.join(row['failed'])}" for row in report["rows"]]
    rows = [{**row, "mark": mark} for row, mark in zip(report["rows"], marks, strict=True)]
    verdict = "passed" if report["passed"] else "FAILED"
    lines = [
        *text_table(_TESTS, rows),
        "TV: bound on the total variation distance to the true density. Estimate: the distance",
        "by paths that run back in time. Measured: the same by a reference of simulated paths.",
        "Half steps: relative difference between two steps of t/2 and one step of t (within one",
        "subinterval; none where coefficients depend on time). z: difference from simulated paths,",
        "in standard errors.",
        f"Check {verdict}: TV at most {report['limit']:g}, half steps within "
        f"{_DISCREPANCY:g}, every z below {_Z:g}.",
    ]
    return "\n".join(lines)


def write_report(path: Path, sde: str | None, out: Path, starts: int, seed: int) -> None:
    """Write an HTML page about a model file; missing error bounds and errors are computed."""
    require_writable(out)
    density, exact = load_with_exact(path, sde)
    if density.horizon > 0 and not density.provenance.certificate:
        density = density.with_provenance(certificate=certificate_table(density, jr.key(seed)))
    if not density.provenance.errors:
        density = with_errors(density, exact, seed, starts)
    from .. import view

    view.report(density, exact, file=str(path), path=out)
