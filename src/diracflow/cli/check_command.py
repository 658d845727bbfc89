"""`diracflow check`: tests of a model that need no exact solution."""

from pathlib import Path
from typing import Any

import jax.random as jr
import numpy as np

from ..density.learned import LearnedDensity
from ..density.summary import described, landmarks, split
from ..evaluate.consistency import agreement_with_paths, chapman_kolmogorov
from .inputs import load_model

# Times at which a model is checked, as fractions of the horizon.
_SHARES = (0.1, 0.4, 1.0)
# Largest z-score that passes: a correct model exceeds it once in several thousand checks.
_Z = 4.0
# Largest relative difference of densities between two half steps and one step, beyond noise.
_DISCREPANCY = 0.05


def check_model(path: Path, sde: str | None, limit: float, seed: int) -> dict[str, Any]:
    """Return all test results of `diracflow check`, and whether the model passed."""
    if not 0 < limit <= 1:
        raise ValueError(
            f"`--limit` is a total variation distance and must lie in (0, 1]; got {limit:g}."
        )
    density = load_model(path, sde)
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


def check_text(report: dict[str, Any]) -> str:
    """Return the test results as a table."""
    head = "       t  start   TV at most   (s.e.)   half steps   (s.e.)   mean z  cov. z  energy z"
    lines = [
        f"{row['t']:8.3g}  {row['start']:<7} {row['bound']:9.1e}  {row['bound_stderr']:7.0e}"
        f"  {_half(row):>19}  {row['mean_z']:7.1f} {row['covariance_z']:7.1f}"
        f"  {row['energy_z']:8.1f}  {'' if row['passed'] else '<- ' + ', '.join(row['failed'])}"
        for row in report["rows"]
    ]
    verdict = "passed" if report["passed"] else "FAILED"
    return "\n".join(
        [
            head,
            *lines,
            "TV: bound on the total variation distance to the true density. Half steps: relative",
            "difference between two steps of t/2 and one step of t (within one subinterval). z:",
            "difference from Euler-Maruyama paths, in standard errors.",
            f"Check {verdict}: TV at most {report['limit']:g}, half steps within "
            f"{_DISCREPANCY:g}, every z below {_Z:g}.",
        ]
    )


def _row(
    density: LearnedDensity, key: Any, t: float, name: str, g: np.ndarray, limit: float
) -> dict[str, Any]:
    bound_key, half_key, path_key = jr.split(key, 3)
    x0, conditioning = split(density, g)
    bound = density.certificate(bound_key, t, x0, **conditioning)
    paths = agreement_with_paths(density, path_key, t, x0, **conditioning)
    row = {
        "t": t,
        "start": name,
        **described(density, g),
        "bound": float(bound.bound),
        "bound_stderr": float(bound.stderr),
        **_half_steps(density, half_key, t, x0, conditioning),
        "mean_z": paths.mean_z,
        "covariance_z": paths.covariance_z,
        "energy_z": paths.energy_z,
    }
    tests = {
        "bound": row["bound"] <= limit,
        "half steps": row["excess"] is None or row["excess"] <= _DISCREPANCY**2,
        "mean": row["mean_z"] <= _Z,
        "covariance": row["covariance_z"] <= _Z,
        "energy": row["energy_z"] <= _Z,
    }
    failed = [test for test, passed in tests.items() if not passed]
    return {**row, "failed": failed, "passed": not failed}


def _half_steps(
    density: LearnedDensity, key: Any, t: float, x0: np.ndarray, conditioning: dict[str, Any]
) -> dict[str, Any]:
    unknown = {"half_steps": None, "half_steps_stderr": None, "excess": None}
    try:
        # Longer times are composed of steps up to `reach`, so those steps are tested.
        found = chapman_kolmogorov(density, key, min(t, density.reach), x0, **conditioning)
    except ValueError as error:  # coefficients depend on time, or t/2 is out of range
        return {**unknown, "why": str(error)}
    spread = float(np.sqrt(found.stderr))
    excess = found.squared - _Z * found.stderr
    return {"half_steps": found.discrepancy, "half_steps_stderr": spread, "excess": excess}


def _half(row: dict[str, Any]) -> str:
    if row["half_steps"] is None:
        return "depends on time"
    return f"{row['half_steps']:.1e}  {row['half_steps_stderr']:7.0e}"
