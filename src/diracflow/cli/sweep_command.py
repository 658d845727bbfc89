"""`diracflow sweep`: many trainings from one file."""

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from ..sweep import (
    Backend,
    DaskBackend,
    LocalBackend,
    Plan,
    RayBackend,
    read_plan,
    rows_of,
    run_plan,
)
from ..sweep.table import settings_text
from ..training.termination import TrainingTerminated
from .exits import Exit, Stopped, Terminated
from .inputs import prepare_jax
from .streams import talk

# Of the backend, its address, jobs and threads.
Where = tuple[str, str | None, int, int | None]


def sweep_plan(
    file: Path, out: Path | None, where: Where, *, retry: bool, quiet: bool
) -> dict[str, Any]:
    """Run what a plan holds and is not done; returns the table."""
    threads, make = _backend(*where)
    plan = _plan(file, out)
    say: Callable[[str], object] = (lambda text: None) if quiet else talk
    say(f"{len(plan.runs)} runs, kept in {plan.out}.")
    try:
        rows = run_plan(
            plan,
            make,
            threads=threads,
            retry=retry,
            report=lambda row, done, total: say(_line(row, done, total)),
        )
    except KeyboardInterrupt as stop:
        raise Stopped(_stopped("Interrupted", plan), Exit.INTERRUPTED) from stop
    except (TrainingTerminated, Terminated) as stop:
        raise Stopped(_stopped("Terminated", plan), Exit.TERMINATED) from stop
    return _found(plan, rows)


def list_runs(file: Path, out: Path | None) -> dict[str, Any]:
    """The table as it stands."""
    plan = _plan(file, out)
    return _found(plan, rows_of(plan))


def table_text(found: dict[str, Any]) -> str:
    """The table for people."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("model", "preset", "seed", "settings", "status"):
        table.add_column(name, overflow="fold")
    for name in ("horizon", "seconds", "error", "certificate"):
        table.add_column(name, justify="right", no_wrap=True)
    shared = _shared([row["settings"] for row in found["rows"]])
    for row in found["rows"]:
        own = {name: value for name, value in row["settings"].items() if name not in shared}
        table.add_row(*_cells(row | {"settings": settings_text(own)}))
    # A pipe has no width; what cannot be cut there is cut by nobody.
    console = Console(width=None if sys.stdout.isatty() else 160, color_system=None)
    with console.capture() as captured:
        console.print(table)
    alike = [f"All runs have {settings_text(shared)}."] if shared else []
    return "\n".join([captured.get().strip("\n"), *alike, *_below(found)])


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    reached, asked = row["horizon"], row["asked_horizon"]
    until = "" if reached is None else f"{reached:.3g}"
    if reached is not None and reached < asked:
        until += f" of {asked:g}"
    return (
        *(row["model"], row["preset"], str(row["seed"]), row["settings"], row["status"], until),
        "" if row["seconds"] is None else f"{row['seconds']:.0f}",
        *("" if row[name] is None else f"{row[name]:.1e}" for name in ("error", "certificate")),
    )


def _shared(settings: list[dict[str, Any]]) -> dict[str, Any]:
    """What all runs have alike, if there are several."""
    if len(settings) < 2:
        return {}
    first, *others = settings
    return {
        name: value
        for name, value in first.items()
        if all(name in other and other[name] == value for other in others)
    }


def _below(found: dict[str, Any]) -> list[str]:
    lines = [
        f"{row['run']}: {row['status']}: {row['message']}" for row in found["rows"] if row["failed"]
    ]
    if found["failed"]:
        lines.append("With `--retry` runs that failed are gone on with.")
    return [
        "error: relative squared L2 against the exact density at the horizon, mean over starts; "
        "certificate: mean bound.",
        *lines,
        f"{found['done']} of {len(found['rows'])} runs are done, {found['failed']} failed; "
        f"table.csv, table.json and models are in {found['out']}.",
    ]


def _plan(file: Path, out: Path | None) -> Plan:
    prepare_jax()
    cache = getattr(jax.config, "jax_compilation_cache_dir")  # noqa: B009 (unknown to types)
    if cache:  # the runs' processes have it, too
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache))
    return read_plan(file, out)


def _backend(
    name: str, address: str | None, jobs: int, threads: int | None
) -> tuple[int | None, Callable[[], Backend]]:
    """Cores of each run, and what makes the backend."""
    if name == "local" and address is not None:
        raise ValueError("`--address` is that of a Dask scheduler or a Ray cluster: add --backend.")
    if threads is None and jobs > 1 and address is None:
        threads = max(_cores() // jobs, 1)
    makers: dict[str, Callable[[], Backend]] = {
        "local": lambda: LocalBackend(jobs, threads),
        "dask": lambda: DaskBackend(address, jobs),
        "ray": lambda: RayBackend(address, jobs, threads),
    }
    if name not in makers:
        raise ValueError(f"`--backend` is one of {', '.join(makers)}; got {name!r}.")
    return threads, makers[name]


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _found(plan: Plan, rows: list[dict[str, Any]]) -> dict[str, Any]:
    ended = [row for row in rows if row["failed"] is not None]
    failed = sum(row["failed"] for row in ended)
    return {"out": str(plan.out), "done": len(ended) - failed, "failed": failed, "rows": rows}


def _line(row: dict[str, Any], done: int, total: int) -> str:
    took = "" if row["seconds"] is None else f" in {row['seconds']:.0f} s"
    return f"{done} of {total}: {row['run']}: {row['status']}{took} {row['message'] or ''}".rstrip()


def _stopped(what: str, plan: Plan) -> str:
    ended = sum(row["failed"] is not None for row in rows_of(plan))
    command = shlex.join(["diracflow", *sys.argv[1:]])
    return f"{what}. {ended} of {len(plan.runs)} runs have ended; to go on: {command}"
