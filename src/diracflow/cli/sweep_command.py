"""`diracflow sweep`: many trainings from one file. It imports JAX when it runs."""

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from .options import Json
from .terminal import conclude, stoppable, talk, text_table

# Headings, names of the values in a row, and formats.
_COLUMNS = (
    *(("model", "model", ""), ("preset", "preset", ""), ("seed", "seed", "")),
    *(("settings", "special", ""), ("status", "status", "")),
    *(("horizon", "horizon", ".3g"), ("of", "asked_horizon", "g"), ("seconds", "seconds", ".0f")),
    *(("error", "error", ".1e"), ("certificate", "certificate", ".1e")),
)


def sweep(
    plan: Annotated[Path, typer.Argument(help="A TOML file that lists the trainings.")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Folder for the runs and the table.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at the same time.")] = 1,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Cores of each run; default all cores / jobs."),
    ] = None,
    backend: Annotated[str, typer.Option(help="local, dask or ray.")] = "local",
    address: Annotated[
        str | None,
        typer.Option(help="Address of a Dask scheduler or Ray cluster; default a local one."),
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Repeat runs that failed.")] = False,
    only_list: Annotated[
        bool, typer.Option("--list", help="Print the current table; run nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Learn all combinations of SDEs, seeds, presets and settings in a plan; resumable."""
    import jax

    from ..sweep import read_sweep, run_sweep, sweep_table
    from .inputs import prepare_jax

    prepare_jax()
    cache = getattr(jax.config, "jax_compilation_cache_dir")  # noqa: B009 (unknown to types)
    if cache:  # for the processes of the runs
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache))
    found = read_sweep(plan, out)

    def say(text: str) -> None:
        if not as_json:
            talk(text)

    def report(row: dict[str, Any], ended: int, total: int) -> None:
        time = "" if row["seconds"] is None else f" in {row['seconds']:.0f} s"
        line = f"{ended} of {total}: {row['run']}: {row['status']}{time} {row['message'] or ''}"
        say(line.rstrip())

    def message(cause: str) -> str:
        ended = sum(row["failed"] is not None for row in sweep_table(found))
        command = shlex.join(["diracflow", *sys.argv[1:]])
        return f"{cause}. {ended} of {len(found.runs)} runs have ended. To resume: {command}"

    if not only_list:
        say(f"{len(found.runs)} runs in {found.out}.")
        options = {"address": address, "jobs": jobs, "threads": threads, "retry": retry}
        with stoppable(message):
            run_sweep(found, backend, **options, report=report)  # type: ignore[arg-type]
    rows = sweep_table(found)
    ended = [row for row in rows if row["failed"] is not None]
    failed = sum(row["failed"] for row in ended)
    done = {"out": str(found.out), "done": len(ended) - failed, "failed": failed, "rows": rows}
    conclude(done, as_json, table_text(done), failed=failed > 0 and not only_list)


def table_text(summary: dict[str, Any]) -> str:
    """Return the table as text."""
    from ..sweep.sweep_runs import settings_text

    first, *others = (row["settings"] for row in summary["rows"])
    # Settings that all of several runs have in common are shown once, below the table.
    same = [n for n in first if others and all(o.get(n) == first[n] for o in others)]
    common = {name: first[name] for name in same}
    special = [
        settings_text({n: v for n, v in row["settings"].items() if n not in common})
        for row in summary["rows"]
    ]
    rows = [{**row, "special": t} for row, t in zip(summary["rows"], special, strict=True)]
    failed = [row for row in summary["rows"] if row["failed"]]
    lines = [
        *text_table(_COLUMNS, rows),
        *([f"Common to all runs: {settings_text(common)}."] if common else []),
        "error: relative squared L2 error against the exact density at the horizon, mean over "
        "starts; certificate: mean error bound.",
        *(f"{row['run']}: {row['status']}: {row['message']}" for row in failed),
        *(["Use `--retry` to resume the runs that failed."] if failed else []),
        f"{summary['done']} of {len(summary['rows'])} runs are done, {len(failed)} failed; "
        f"table.csv, table.json and the models are in {summary['out']}.",
    ]
    return "\n".join(lines)
