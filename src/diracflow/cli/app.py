"""The commands: a table of all of them, and the entry point.

Most commands are written in modules of their own. Those declared here, as all others, import their
implementation when they run, so that `--help` does not wait for JAX.
"""

from pathlib import Path
from typing import Annotated

import typer

from .explore_command import explore
from .infer_command import infer
from .options import (
    Equation,
    Json,
    ModelFile,
    Preset,
    ProblemOptions,
    Seed,
    Settings,
    TrainingOptions,
    changed_settings,
    expanded,
)
from .query_commands import bridge, density, loglik, propagate, sample
from .series_commands import filter, forecast, smooth
from .sweep_command import sweep
from .terminal import conclude, emit, only_results, run_process

app = typer.Typer(
    help="Learn the transition density of a diffusion process from its SDE.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# Repeated here because `--help` must not import JAX. A test compares them with `models.MODELS`.
BUILT_IN = (
    *("benes", "sheared", "brownian", "ornstein_uhlenbeck", "ornstein_uhlenbeck_family"),
    *("seasonal", "double_well", "double_well_chain", "van_der_pol"),
    *("linear_langevin", "langevin", "duffing"),
    *("geometric_brownian", "geometric_brownian_family", "cir", "cir_family", "ckls", "jacobi"),
    *("lotka_volterra", "heston"),
)


def run(
    model: Annotated[str, typer.Argument(help=f"One of {', '.join(BUILT_IN)}.")],
    *,
    preset: Preset = "quick",
    out: Annotated[
        Path | None, typer.Option(help="Folder for model, report and figures; default runs/MODEL.")
    ] = None,
    starts: Annotated[
        int, typer.Option(min=1, help="Start points over which errors are averaged.")
    ] = 64,
    training: TrainingOptions,
    as_json: Json = False,
) -> None:
    """Learn a built-in model, compare it with the exact density if known, draw figures."""
    changes = changed_settings(training.settings)
    training.prepare()
    from .run_command import run_model

    found = run_model(
        *(model, preset, out or Path("runs") / model, training.seed, starts, changes),
        quiet=as_json,
        **training.resources(),
    )
    if found:  # empty in all but the first of several processes
        conclude(found, as_json, failed=found["failed"])


def learn(
    target: Annotated[
        str, typer.Argument(help="FILE.py:NAME, a `diracflow.SDE` or a model with starts.")
    ],
    *,
    out: Annotated[Path, typer.Option("-o", "--out", help="The model file to write.")] = Path(
        "model.dflow"
    ),
    problem: ProblemOptions,
    preset: Preset = "accurate",
    training: TrainingOptions,
    as_json: Json = False,
) -> None:
    """Learn your own SDE."""
    training.prepare()
    from .learn_command import learn_file

    found = learn_file(target, out, problem, preset, training, quiet=as_json)
    if found:  # empty in all but the first of several processes
        text = "{file}: {status} up to t = {horizon:g}. {message}".format(**found)
        conclude(found, as_json, text, failed=found["failed"])


def plan(
    target: Annotated[
        str, typer.Argument(help="FILE.py:NAME, as for `learn`, or the name of a built-in model.")
    ],
    *,
    problem: ProblemOptions,
    preset: Preset = "accurate",
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Show what `learn` would do and why, in seconds, without training."""
    from .learn_command import plan_of_file

    found = plan_of_file(target, problem, preset, changed_settings(settings), BUILT_IN)
    conclude(found.describe(), as_json, str(found))


def info(model: ModelFile, as_json: Json = False) -> None:
    """Describe a model file: the SDE, the training and the error bounds."""
    from ..density.model_file import read_header
    from .model_commands import info_text

    header = read_header(model)
    conclude(header, as_json, info_text(header, str(model)))


def check(
    model: ModelFile,
    sde: Equation = None,
    limit: Annotated[
        float, typer.Option(help="Largest accepted bound on the total variation error.")
    ] = 0.1,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Check a model without an exact solution: error bound, half steps, simulated paths."""
    from .model_commands import check_model, check_text

    found = check_model(model, sde, limit, seed)
    conclude(found, as_json, check_text(found), failed=not found["passed"])


def report(
    model: ModelFile,
    out: Annotated[Path, typer.Option("-o", "--out", help="The page to write.")] = Path(
        "report.html"
    ),
    starts: Annotated[
        int,
        typer.Option(
            min=1, help="Start points over which errors are averaged, if the file has none."
        ),
    ] = 16,
    sde: Equation = None,
    seed: Seed = 0,
) -> None:
    """Write an HTML page with densities, errors, error bounds and the training history."""
    from .model_commands import write_report

    write_report(model, sde, out, starts, seed)
    emit(f"The report is in {out}.")


for _function in (
    *(run, learn, plan, sweep),
    *(info, check, report, explore),
    *(density, sample, propagate, loglik),
    *(bridge, filter, smooth, forecast, infer),
):
    app.command()(only_results(expanded(_function)))


def main() -> None:
    """Run the command line; an error becomes one line on the standard error and an exit code."""
    run_process(app)
