"""Commands and their options."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(
    help="Learn the transition density of a diffusion process from its SDE.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, typer.Option("--json", help="Print machine-readable JSON only.")]


@app.callback()
def _commands() -> None:
    """Keeps `run` and its like as subcommands."""


@app.command()
def run(
    model: Annotated[str, typer.Argument(help="benes, sheared, ornstein_uhlenbeck or brownian.")],
    preset: Annotated[str, typer.Option(help="quick, accurate or paper.")] = "quick",
    out: Annotated[
        Path | None, typer.Option(help="Where to leave model, report and figures [runs/MODEL].")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random keys.")] = 0,
    starts: Annotated[int, typer.Option(help="Starts over which errors are averaged.")] = 64,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a setting of the preset: --set tolerance=1e-4."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Learn a built-in model, check it against the exact density, draw the figures."""
    changes = dict(_setting(text) for text in settings or [])
    from .run import run_model

    report = run_model(
        model, preset, out or Path("runs") / model, seed, starts, changes, quiet=as_json
    )
    if as_json:
        print(json.dumps(report))
    if report["failed"]:
        raise typer.Exit(1)


@app.command()
def info(
    model: Annotated[Path, typer.Argument(help="A model file, such as runs/benes/model.dflow.")],
    as_json: Json = False,
) -> None:
    """Say what a model file holds and how it was made."""
    from ..density.files import read_header
    from .info import info_text

    header = read_header(model)
    print(json.dumps(header) if as_json else info_text(header, str(model)))


def main() -> None:
    """Entry point: user's mistakes become one line and exit code 2."""
    try:
        app()
    except (ValueError, OSError, ModuleNotFoundError) as error:
        _fail(str(error), 2)
    except RuntimeError as error:
        _fail(str(error), 1)
    except KeyboardInterrupt:
        _fail("Interrupted.", 130)


def _fail(message: str, code: int) -> None:
    print(f"diracflow: {message}", file=sys.stderr)
    sys.exit(code)


def _setting(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ValueError(f"`--set` takes name=value; got {text!r}.")
    try:
        return name.strip(), json.loads(value)
    except json.JSONDecodeError:
        return name.strip(), value.strip()
