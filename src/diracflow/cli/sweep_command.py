"""`diracflow sweep`: many trainings from one file."""

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from ..sweep import Sweep, read_sweep, run_sweep, sweep_table
from ..sweep.sweep_runs import settings_text
from .exits import Exit, Stopped, Terminated
from .inputs import prepare_jax
from .streams import talk

# Backend, address of the cluster, number of simultaneous runs, cores of each run.
Where = tuple[str, str | None, int, int | None]


def sweep_plan(
    file: Path, out: Path | None, where: Where, *, retry: bool, quiet: bool
) -> dict[str, Any]:
    """Do the runs of a sweep that have no result, and return its table."""
    backend, address, jobs, threads = where
    sweep = _read(file, out)
    say: Callable[[str], object] = (lambda text: None) if quiet else talk
    say(f"{len(sweep.runs)} runs in {sweep.out}.")
    try:
        rows = run_sweep(
            sweep,
            backend,
            address=address,
            jobs=jobs,
            threads=threads,
            retry=retry,
            report=lambda row, ended, total: say(_progress_line(row, ended, total)),
        )
    except KeyboardInterrupt as stop:
        raise Stopped(_stop_message("Interrupted", sweep), Exit.INTERRUPTED) from stop
    except Terminated as stop:
        raise Stopped(_stop_message("Terminated", sweep), Exit.TERMINATED) from stop
    return _summary(sweep, rows)


def list_runs(file: Path, out: Path | None) -> dict[str, Any]:
    """Return the current table without running anything."""
    sweep = _read(file, out)
    return _summary(sweep, sweep_table(sweep))


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
    common = _common([row["settings"] for row in summary["rows"]])
    for row in summary["rows"]:
        others = {name: value for name, value in row["settings"].items() if name not in common}
        table.add_row(*_cells(row | {"settings": settings_text(others)}))
    # A pipe has no width; the default of 80 would truncate the numbers.
    console = Console(width=None if sys.stdout.isatty() else 160, color_system=None)
    with console.capture() as captured:
        console.print(table)
    shared = [f"Common to all runs: {settings_text(common)}."] if common else []
    return "\n".join([captured.get().strip("\n"), *shared, *_notes(summary)])


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    reached, asked = row["horizon"], row["asked_horizon"]
    horizon = "" if reached is None else f"{reached:.3g}"
    if reached is not None and reached < asked:
        horizon += f" of {asked:g}"
    return (
        *(row["model"], row["preset"], str(row["seed"]), row["settings"], row["status"], horizon),
        "" if row["seconds"] is None else f"{row['seconds']:.0f}",
        *("" if row[name] is None else f"{row[name]:.1e}" for name in ("error", "certificate")),
    )


def _common(settings: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the settings that several runs have in common; none if there is one run."""
    first, *others = settings
    return {
        name: value
        for name, value in first.items()
        if others and all(name in other and other[name] == value for other in others)
    }


def _notes(summary: dict[str, Any]) -> list[str]:
    failed = [row for row in summary["rows"] if row["failed"]]
    return [
        "error: relative squared L2 error against the exact density at the horizon, mean over "
        "starts; certificate: mean error bound.",
        *(f"{row['run']}: {row['status']}: {row['message']}" for row in failed),
        *(["Use `--retry` to resume the runs that failed."] if failed else []),
        f"{summary['done']} of {len(summary['rows'])} runs are done, {len(failed)} failed; "
        f"table.csv, table.json and the models are in {summary['out']}.",
    ]


def _read(file: Path, out: Path | None) -> Sweep:
    prepare_jax()
    cache = getattr(jax.config, "jax_compilation_cache_dir")  # noqa: B009 (unknown to types)
    if cache:  # for the processes of the runs
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache))
    return read_sweep(file, out)


def _summary(sweep: Sweep, rows: list[dict[str, Any]]) -> dict[str, Any]:
    ended = [row for row in rows if row["failed"] is not None]
    failed = sum(row["failed"] for row in ended)
    return {"out": str(sweep.out), "done": len(ended) - failed, "failed": failed, "rows": rows}


def _progress_line(row: dict[str, Any], ended: int, total: int) -> str:
    time = "" if row["seconds"] is None else f" in {row['seconds']:.0f} s"
    message = row["message"] or ""
    return f"{ended} of {total}: {row['run']}: {row['status']}{time} {message}".rstrip()


def _stop_message(what: str, sweep: Sweep) -> str:
    ended = sum(row["failed"] is not None for row in sweep_table(sweep))
    command = shlex.join(["diracflow", *sys.argv[1:]])
    return f"{what}. {ended} of {len(sweep.runs)} runs have ended. To resume: {command}"
