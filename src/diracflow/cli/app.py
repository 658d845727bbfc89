"""Commands and their options."""

import contextlib
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from . import use_commands
from .exits import Exit, exit_of, message_of
from .options import (
    Changes,
    Checkpoint,
    Chunk,
    Coordinator,
    Devices,
    Distributed,
    Equation,
    Json,
    Memory,
    ModelFile,
    Preset,
    Processes,
    ProcessId,
    Resume,
    Seed,
    Threads,
)
from .stopping import checked_checkpoint, leave
from .streams import (
    close_pipe,
    command,
    emit,
    open_streams,
    report_error,
    settle,
    short_warnings,
    talk,
    terminable,
)

app = typer.Typer(
    help="Learn the transition density of a diffusion process from its SDE.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

use_commands.register(app)

# Written out: `--help` must not wait for JAX. A test compares them with `models.MODELS`.
BUILT_IN = (
    *("benes", "sheared", "brownian", "ornstein_uhlenbeck", "ornstein_uhlenbeck_family"),
    *("seasonal", "double_well", "double_well_chain", "van_der_pol"),
    *("linear_langevin", "langevin", "duffing"),
    *("geometric_brownian", "geometric_brownian_family", "cir", "cir_family", "ckls", "jacobi"),
    *("lotka_volterra", "heston"),
)


@app.callback()
def _commands() -> None:
    """Keeps `run` and its like as subcommands."""


@app.command()
@command
def run(
    model: Annotated[str, typer.Argument(help=f"One of {', '.join(BUILT_IN)}.")],
    preset: Preset = "quick",
    out: Annotated[
        Path | None, typer.Option(help="Where to leave model, report and figures; else runs/MODEL.")
    ] = None,
    seed: Seed = 0,
    starts: Annotated[int, typer.Option(help="Starts over which errors are averaged.")] = 64,
    settings: Changes = None,
    checkpoint: Checkpoint = None,
    resume: Resume = False,
    threads: Threads = None,
    memory_limit: Memory = None,
    devices: Devices = None,
    chunk: Chunk = None,
    coordinator: Coordinator = None,
    processes: Processes = None,
    process_id: ProcessId = None,
    distributed: Distributed = False,
    as_json: Json = False,
) -> None:
    """Learn a built-in model, check it against the exact density if known, draw the figures."""
    changes = dict(_setting(text) for text in settings or [])
    checked_checkpoint(checkpoint, resume)
    _limit(threads)
    _join(coordinator, processes, process_id, distributed)
    from .run_command import run_model

    found = run_model(
        *(model, preset, out or Path("runs") / model, seed, starts, changes),
        quiet=as_json,
        checkpoint=checkpoint,
        memory_limit=memory_limit,
        devices=devices,
        chunk=chunk,
    )
    if not found:  # another process of the same training tells
        return
    if as_json:
        _emit_json(found)
    if found["failed"]:
        raise typer.Exit(Exit.FAILED)


@app.command()
@command
def info(
    model: ModelFile,
    as_json: Json = False,
) -> None:
    """Say what a model file holds and how it was made."""
    from ..density.model_file import read_header
    from .info_command import info_text

    header = read_header(model)
    if as_json:
        _emit_json(header)
    else:
        emit(info_text(header, str(model)))


@app.command()
@command
def learn(
    target: Annotated[
        str, typer.Argument(help="FILE.py:NAME, a `diracflow.SDE` or a model with starts.")
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="Where to write the model.")] = Path(
        "model.dflow"
    ),
    starts: Annotated[
        str | None,
        typer.Option(help='Law of the start: \'{"law": "Normal", "mean": 0, "std": 1}\'.'),
    ] = None,
    horizon: Annotated[float | None, typer.Option(help="The longest time since the start.")] = None,
    params: Annotated[
        str | None,
        typer.Option(help='Laws of parameters: \'{"rate": {"law": "Uniform", ...}, ...}\'.'),
    ] = None,
    start_time: Annotated[
        str | None, typer.Option(help="When the process starts: a number, or a law of it; else 0.")
    ] = None,
    preset: Preset = "accurate",
    seed: Seed = 0,
    settings: Changes = None,
    checkpoint: Checkpoint = None,
    resume: Resume = False,
    threads: Threads = None,
    memory_limit: Memory = None,
    devices: Devices = None,
    chunk: Chunk = None,
    coordinator: Coordinator = None,
    processes: Processes = None,
    process_id: ProcessId = None,
    distributed: Distributed = False,
    as_json: Json = False,
) -> None:
    """Learn an SDE of your own."""
    checked_checkpoint(checkpoint, resume)
    _limit(threads)
    _join(coordinator, processes, process_id, distributed)
    from .learn_command import learn_file

    changes = dict(_setting(text) for text in settings or [])
    laws = (starts, params, start_time)
    found = learn_file(
        *(target, out, laws, horizon, preset, seed, changes),
        quiet=as_json,
        checkpoint=checkpoint,
        memory_limit=memory_limit,
        devices=devices,
        chunk=chunk,
    )
    if not found:  # another process of the same training tells
        return
    if as_json:
        _emit_json(found)
    else:
        emit(
            f"{found['file']}: {found['status']} up to t = {found['horizon']:g}. {found['message']}"
        )
    if found["failed"]:
        raise typer.Exit(Exit.FAILED)


@app.command()
@command
def sweep(
    plan: Annotated[Path, typer.Argument(help="A TOML file that says what to run.")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Where to keep runs and table.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time on this machine.")] = 1,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Cores of each run [all, shared among the jobs].")
    ] = None,
    backend: Annotated[str, typer.Option(help="local, dask or ray.")] = "local",
    address: Annotated[
        str | None, typer.Option(help="Of the Dask scheduler or Ray cluster [one made here].")
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Also run again what failed.")] = False,
    only_list: Annotated[
        bool, typer.Option("--list", help="Print the table as it stands; run nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Learn many: SDEs, seeds, presets and settings of a plan, resumable, one table at the end."""
    from .sweep_command import list_runs, sweep_plan, table_text

    if only_list:
        found = list_runs(plan, out)
    else:
        where = (backend, address, jobs, threads)
        found = sweep_plan(plan, out, where, retry=retry, quiet=as_json)
    if as_json:
        _emit_json(found)
    else:
        emit(table_text(found))
    if found["failed"] and not only_list:
        raise typer.Exit(Exit.FAILED)


@app.command()
@command
def check(
    model: ModelFile,
    sde: Equation = None,
    limit: Annotated[
        float, typer.Option(help="Largest total variation to the truth that passes.")
    ] = 0.1,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Check a model without an exact solution: certificate, half steps, simulated paths."""
    from .check_command import check_model, check_text

    found = check_model(model, sde, limit, seed)
    if as_json:
        _emit_json(found)
    else:
        emit(check_text(found))
    if not found["passed"]:
        raise typer.Exit(Exit.FAILED)


@app.command()
@command
def report(
    model: ModelFile,
    out: Annotated[Path, typer.Option("-o", "--out", help="Where to write the page.")] = Path(
        "report.html"
    ),
    starts: Annotated[
        int, typer.Option(help="Starts over which errors are averaged, if the file has none.")
    ] = 16,
    sde: Equation = None,
    seed: Seed = 0,
) -> None:
    """Write one HTML page: what was learned, densities, errors, certificate, training."""
    from .report_command import write_report

    write_report(model, sde, out, starts, seed)
    emit(f"The report is in {out}.")


def main() -> None:
    """Entry point: an error becomes one line on the standard error and an exit code."""
    open_streams()
    with short_warnings(), terminable():
        code = _outcome()
    settle()
    leave(code)


# Whether Typer brings its own copy of Click or not.
_ClickError: Any = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)


def _outcome() -> int:
    """Run the command that was typed; its exit code."""
    try:
        code = app(prog_name="diracflow", standalone_mode=False)
        sys.stdout.flush()
    except SystemExit as end:  # Typer's own, where a pipe broke
        close_pipe()
        return end.code if end.code in (0, 2) else Exit.PIPE
    except _ClickError as error:
        return _wrong_usage(error)
    except typer.Abort:
        return _failed(KeyboardInterrupt())
    except BaseException as error:
        return _failed(error)
    if code == Exit.INTERRUPTED:
        return _failed(KeyboardInterrupt())
    return int(code or Exit.OK)


def _failed(error: BaseException) -> int:
    code = exit_of(error)
    if code is Exit.PIPE:
        close_pipe()
        return code
    with contextlib.suppress(OSError):  # no one is there to be told
        report_error(message_of(error), code, "--json" in sys.argv)
    return code


def _wrong_usage(error: Any) -> int:
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        # Rich has printed the help by now; plain Click leaves it to us.
        if error.format_message():
            talk(error.format_message())
        return Exit.USAGE
    path = "diracflow" if context is None else context.command_path
    said = error.format_message().rstrip(".")
    report_error(f"{said}. Try `{path} --help`.", Exit.USAGE, "--json" in sys.argv)
    return Exit.USAGE


def _emit_json(found: dict[str, Any]) -> None:
    from .tables import as_json

    emit(as_json(found))


def _limit(threads: int | None) -> None:
    """Obey `--threads`, before anything is computed."""
    if threads is not None:
        from ..training.threads import limit_threads

        limit_threads(threads)


def _join(
    coordinator: str | None, processes: int | None, process_id: int | None, automatic: bool
) -> None:
    """Join the other processes, if there are any, before anything is computed."""
    if automatic or (coordinator, processes, process_id) != (None, None, None):
        from ..training.multiprocess import join

        join(coordinator, processes, process_id, automatic=automatic)


def _setting(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ValueError(f"`--set` takes name=value; got {text!r}.")
    try:
        return name.strip(), json.loads(value)
    except json.JSONDecodeError:
        return name.strip(), value.strip()
