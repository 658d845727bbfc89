"""Commands that use a model."""

from pathlib import Path
from typing import Annotated

import typer

from .options import (
    Began,
    Data,
    Equation,
    Figure,
    Json,
    ModelFile,
    Params,
    Seed,
    Single,
    Start,
    Table,
    Time,
)
from .streams import command as apart


def density(
    model: ModelFile,
    t: Time,
    x0: Start,
    x: Annotated[str | None, typer.Option("--x", help="One point at which to evaluate.")] = None,
    points: Annotated[
        Path | None, typer.Option(help="Points, one a row: .csv, or .npz with an array x.")
    ] = None,
    out: Table = None,
    params: Params = None,
    start_time: Began = None,
    sde: Equation = None,
    single: Single = False,
    as_json: Json = False,
) -> None:
    """Evaluate a learned log-density at points."""
    from .density_command import print_density
    from .inputs import parse_given

    given = parse_given(params, start_time)
    print_density(model, t, x0, x, points, given, out, sde, as_json, single)


def sample(
    model: ModelFile,
    t: Time,
    x0: Start,
    count: Annotated[int, typer.Option("--count", "-n", help="Number of draws.")] = 1000,
    seed: Seed = 0,
    out: Table = None,
    params: Params = None,
    start_time: Began = None,
    sde: Equation = None,
    single: Single = False,
    as_json: Json = False,
) -> None:
    """Draw states from a learned density."""
    from .inputs import parse_given
    from .sample_command import print_sample

    given = parse_given(params, start_time)
    print_sample(model, t, x0, count, seed, given, out, sde, as_json, single)


def bridge(
    model: ModelFile,
    t: Time,
    x0: Start,
    x1: Annotated[str, typer.Option("--x1", help="The end: numbers divided by commas.")],
    steps: Annotated[int, typer.Option(help="Intervals of each path.")] = 200,
    paths: Annotated[int, typer.Option(help="Number of paths.")] = 1000,
    seed: Seed = 0,
    out: Table = None,
    figure: Figure = None,
    params: Params = None,
    start_time: Began = None,
    sde: Equation = None,
    as_json: Json = False,
) -> None:
    """Draw weighted paths between two points."""
    from .bridge_command import print_bridge
    from .inputs import parse_given

    given = parse_given(params, start_time)
    print_bridge(model, (x0, x1), t, steps, paths, seed, given, out, figure, sde, as_json)


def loglik(
    model: ModelFile,
    data: Data,
    params: Params = None,
    sde: Equation = None,
    as_json: Json = False,
) -> None:
    """Log-likelihood of an observed path, given its first state."""
    from .inputs import parse_given
    from .loglik_command import print_loglik

    print_loglik(model, data, parse_given(params, None), sde, as_json)


def filter(  # the name that the field uses
    model: ModelFile,
    data: Data,
    noise: Annotated[float, typer.Option(help="Standard deviation of the observations.")],
    components: Annotated[
        str | None, typer.Option(help="Components that are observed, such as 1,3; else the first.")
    ] = None,
    particles: Annotated[int, typer.Option(help="Number of particles.")] = 1000,
    seed: Seed = 0,
    out: Table = None,
    figure: Figure = None,
    params: Params = None,
    start_time: Began = None,
    sde: Equation = None,
    as_json: Json = False,
) -> None:
    """The hidden state behind observations with Gaussian noise."""
    from .filter_command import print_filter
    from .inputs import parse_given

    given = parse_given(params, start_time)
    print_filter(model, data, noise, components, particles, seed, given, out, figure, sde, as_json)


def propagate(
    model: ModelFile,
    t: Time,
    law: Annotated[
        str | None,
        typer.Option(help='Initial law: \'{"law": "Normal", "mean": 0, "std": 1}\'.'),
    ] = None,
    draws: Annotated[Path | None, typer.Option(help="Draws of it: .csv, or .npz with x.")] = None,
    points: Annotated[
        Path | None,
        typer.Option(help="Where to evaluate: .csv, or .npz with x; else draw."),
    ] = None,
    count: Annotated[int, typer.Option("--count", "-n", help="Number of draws.")] = 1000,
    seed: Seed = 0,
    out: Table = None,
    params: Params = None,
    start_time: Began = None,
    sde: Equation = None,
    as_json: Json = False,
) -> None:
    """The law that an initial law becomes: its density at points, or draws."""
    from .inputs import parse_given
    from .propagate_command import print_propagated

    given = parse_given(params, start_time)
    print_propagated(model, t, law, draws, points, count, seed, given, out, sde, as_json)


def infer(
    model: Annotated[str, typer.Argument(help="A model with parameters, or ou or cir, exact.")],
    data: Data,
    prior: Annotated[
        str,
        typer.Option(help='\'{"rate": {"law": "LogNormal", "mean": 0, "std": 1}, ...}\'.'),
    ],
    chains: Annotated[int, typer.Option(help="Markov chains.")] = 4,
    draws: Annotated[int, typer.Option(help="Draws of each chain.")] = 1000,
    warmup: Annotated[int, typer.Option(help="Draws in which each chain adapts.")] = 1000,
    seed: Seed = 0,
    out: Annotated[Path, typer.Option("--out", "-o", help="A NetCDF file.")] = Path("posterior.nc"),
    figure: Figure = None,
    sde: Equation = None,
    as_json: Json = False,
) -> None:
    """The posterior of the parameters, given an observed path."""
    from .infer_command import print_posterior

    print_posterior(model, data, prior, chains, draws, warmup, seed, out, figure, sde, as_json)


def explore(
    model: ModelFile,
    port: Annotated[int, typer.Option(help="Port on this machine; 0 takes a free one.")] = 8321,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")
    ] = True,
    sde: Equation = None,
) -> None:
    """Look at a model in a browser: move time, start and parameters, and see the density."""
    from .explore_command import explore_model

    explore_model(model, port, browser, sde)


def register(app: typer.Typer) -> None:
    """Make these functions commands of `app`."""
    for command in (density, sample, bridge, loglik, filter, propagate, infer, explore):
        app.command()(apart(command))
