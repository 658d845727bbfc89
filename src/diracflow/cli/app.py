"""Commands and their options."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from . import use_commands
from .options import Changes, Equation, Json, ModelFile, Preset, Seed

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
    *("seasonal", "double_well", "van_der_pol", "linear_langevin", "langevin", "duffing"),
    *("geometric_brownian", "geometric_brownian_family", "cir", "cir_family", "ckls", "jacobi"),
    *("lotka_volterra", "heston"),
)


@app.callback()
def _commands() -> None:
    """Keeps `run` and its like as subcommands."""


@app.command()
def run(
    model: Annotated[str, typer.Argument(help=f"One of {', '.join(BUILT_IN)}.")],
    preset: Preset = "quick",
    out: Annotated[
        Path | None, typer.Option(help="Where to leave model, report and figures [runs/MODEL].")
    ] = None,
    seed: Seed = 0,
    starts: Annotated[int, typer.Option(help="Starts over which errors are averaged.")] = 64,
    settings: Changes = None,
    as_json: Json = False,
) -> None:
    """Learn a built-in model, check it against the exact density if known, draw the figures."""
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
    model: ModelFile,
    as_json: Json = False,
) -> None:
    """Say what a model file holds and how it was made."""
    from ..density.files import read_header
    from .info import info_text

    header = read_header(model)
    print(json.dumps(header) if as_json else info_text(header, str(model)))


@app.command()
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
        str | None, typer.Option(help="When the process starts: a number, or a law of it [0].")
    ] = None,
    preset: Preset = "accurate",
    seed: Seed = 0,
    settings: Changes = None,
    as_json: Json = False,
) -> None:
    """Learn an SDE of your own."""
    from .learn import learn_file

    changes = dict(_setting(text) for text in settings or [])
    laws = (starts, params, start_time)
    report = learn_file(target, out, laws, horizon, preset, seed, changes, quiet=as_json)
    if as_json:
        print(json.dumps(report))
    else:
        print(
            f"{report['file']}: {report['status']} up to t = {report['horizon']:g}. "
            f"{report['message']}"
        )
    if report["failed"]:
        raise typer.Exit(1)


@app.command()
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
    from .check import check_model, check_text

    report = check_model(model, sde, limit, seed)
    print(json.dumps(report) if as_json else check_text(report))
    if not report["passed"]:
        raise typer.Exit(1)


@app.command()
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
    from .report import write_report

    write_report(model, sde, out, starts, seed)
    print(f"The report is in {out}.")


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
