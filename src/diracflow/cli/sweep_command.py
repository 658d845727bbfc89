"""`diracflow sweep`: many trainings from one file."""

import os
import shlex
import sys
from pathlib import Path
from typing import Any

import jax

from ..sweep import read_sweep, run_sweep, sweep_table
from ..sweep.sweep_runs import settings_text
from .inputs import prepare_jax
from .terminal import stoppable, talk


def sweep_plan(
    file: Path, out: Path | None, options: dict[str, Any] | None, *, quiet: bool
) -> dict[str, Any]:
    """Do the runs of a sweep that have no result, and return its table.

    **Arguments:**

    - `file`: the TOML file.
    - `out`: the directory of the sweep; `None` takes that of the file.
    - `options`: further arguments of `run_sweep`; `None` runs nothing.
    - `quiet`: show no progress.
    """
    prepare_jax()
    cache = getattr(jax.config, "jax_compilation_cache_dir")  # noqa: B009 (unknown to types)
    if cache:  # for the processes of the runs
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache))
    sweep = read_sweep(file, out)

    def say(text: str) -> None:
        if not quiet:
            talk(text)

    def report(row: dict[str, Any], ended: int, total: int) -> None:
        time = "" if row["seconds"] is None else f" in {row['seconds']:.0f} s"
        line = f"{ended} of {total}: {row['run']}: {row['status']}{time} {row['message'] or ''}"
        say(line.rstrip())

    def message(cause: str) -> str:
        ended = sum(row["failed"] is not None for row in sweep_table(sweep))
        command = shlex.join(["diracflow", *sys.argv[1:]])
        return f"{cause}. {ended} of {len(sweep.runs)} runs have ended. To resume: {command}"

    if options is not None:
        say(f"{len(sweep.runs)} runs in {sweep.out}.")
        with stoppable(message):
            run_sweep(sweep, **options, report=report)
    rows = sweep_table(sweep)
    ended = [row for row in rows if row["failed"] is not None]
    failed = sum(row["failed"] for row in ended)
    return {"out": str(sweep.out), "done": len(ended) - failed, "failed": failed, "rows": rows}


def table_text(summary: dict[str, Any]) -> str:
    """Return the table as text."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("model", "preset", "seed", "settings", "status"):
        table.add_column(name, overflow="fold")
    for name in ("horizon", "seconds", "error", "certificate"):
        table.add_column(name, justify="right", no_wrap=True)
    first, *others = (row["settings"] for row in summary["rows"])
    # Settings that all of several runs have in common are shown once, below the table.
    same = [n for n in first if others and all(o.get(n) == first[n] for o in others)]
    common = {name: first[name] for name in same}
    for row in summary["rows"]:
        special = {name: value for name, value in row["settings"].items() if name not in common}
        horizon = "" if row["horizon"] is None else f"{row['horizon']:.3g}"
        if horizon and row["horizon"] < row["asked_horizon"]:
            horizon += f" of {row['asked_horizon']:g}"
        seconds = "" if row["seconds"] is None else f"{row['seconds']:.0f}"
        names = ("error", "certificate")
        errors = ["" if row[name] is None else f"{row[name]:.1e}" for name in names]
        cells = (row["model"], row["preset"], str(row["seed"]), settings_text(special))
        table.add_row(*cells, row["status"], horizon, seconds, *errors)
    # A pipe has no width; the default of 80 would truncate the numbers.
    console = Console(width=None if sys.stdout.isatty() else 160, color_system=None)
    with console.capture() as captured:
        console.print(table)
    failed = [row for row in summary["rows"] if row["failed"]]
    lines = [
        captured.get().strip("\n"),
        *([f"Common to all runs: {settings_text(common)}."] if common else []),
        "error: relative squared L2 error against the exact density at the horizon, mean over "
        "starts; certificate: mean error bound.",
        *(f"{row['run']}: {row['status']}: {row['message']}" for row in failed),
        *(["Use `--retry` to resume the runs that failed."] if failed else []),
        f"{summary['done']} of {len(summary['rows'])} runs are done, {len(failed)} failed; "
        f"table.csv, table.json and the models are in {summary['out']}.",
    ]
    return "\n".join(lines)
