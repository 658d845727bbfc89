"""The results of all runs as one table."""

import csv
import io
import json
import math
from typing import Any

from ..storage.files import write_atomically
from .run_folder import RunFolder
from .sweep_file import Sweep
from .sweep_run import Run

COLUMNS = (
    *("run", "model", "preset", "seed", "settings", "status", "horizon", "asked_horizon"),
    *("seconds", "steps", "parameters", "error", "largest_error", "certificate", "failed"),
    "message",
)


def sweep_table(sweep: Sweep) -> list[dict[str, Any]]:
    """Return the current row of each run.

    **Arguments:**

    - `sweep`: a sweep, as returned by `read_sweep`.
    """
    return [table_row(run, sweep.folder(run)) for run in sweep.runs]


def table_row(run: Run, folder: RunFolder) -> dict[str, Any]:
    """Return the result of one run, or its status if it has not finished."""
    row = {
        "run": run.name,
        "model": run.label,
        "preset": run.preset,
        "seed": run.seed,
        "settings": run.overrides,
        **_finite(folder.result() or {"status": folder.status()}),
    }
    return {name: row.get(name) for name in COLUMNS}


def write_tables(sweep: Sweep, rows: list[dict[str, Any]]) -> None:
    """Write `table.csv` and `table.json`, each atomically."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows({**row, "settings": settings_text(row["settings"])} for row in rows)
    write_atomically(sweep.out / "table.csv", [text.getvalue().encode()])
    content = json.dumps(_finite(rows), indent=1, allow_nan=False) + "\n"
    write_atomically(sweep.out / "table.json", [content.encode()])


def settings_text(settings: dict[str, Any]) -> str:
    """Return names and values on one line."""
    return " ".join(f"{name}={_short(value)}" for name, value in settings.items())


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return json.dumps(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _finite(value: Any) -> Any:
    """Replace infinities and NaN by `None`, since JSON has no such numbers."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
