"""What came out of all runs, as one table."""

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

from ..storage.atomic import write_atomically
from .run_folder import RunFolder
from .sweep_file import Plan
from .sweep_run import Run

COLUMNS = (
    *("run", "model", "preset", "seed", "settings", "status", "horizon", "asked_horizon"),
    *("seconds", "steps", "parameters", "error", "largest_error", "certificate", "failed"),
    "message",
)


def rows_of(plan: Plan) -> list[dict[str, Any]]:
    """One row for each run, as things stand."""
    return [row_of(run, plan.folder(run)) for run in plan.runs]


def row_of(run: Run, folder: RunFolder) -> dict[str, Any]:
    """How one run ended, or how far it is."""
    result = folder.result() or {"status": folder.status()}
    row = {
        "run": run.name,
        "model": run.label(),
        "preset": run.preset,
        "seed": run.seed,
        "settings": run.changes(),
        **result,
    }
    return {name: _finite(row.get(name)) for name in COLUMNS}


def write_tables(out: Path, rows: list[dict[str, Any]]) -> None:
    """`table.csv` and `table.json`, each whole or not at all."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows({**row, "settings": settings_text(row["settings"])} for row in rows)
    write_atomically(out / "table.csv", [text.getvalue().encode()])
    content = json.dumps([_plain(row) for row in rows], indent=1, allow_nan=False) + "\n"
    write_atomically(out / "table.json", [content.encode()])


def settings_text(settings: dict[str, Any]) -> str:
    """Names and values on one line."""
    return " ".join(f"{name}={_short(value)}" for name, value in settings.items())


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return json.dumps(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _plain(value: Any) -> Any:
    """What JSON knows: an infinite setting becomes nothing."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return _finite(value)


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
