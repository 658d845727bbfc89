"""The commands that query a density: its values and draws, propagated laws, bridges.

They import JAX when they run, so that `--help` does not wait for it.
"""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

import diracflow as df

from .options import (
    Count,
    Data,
    Equation,
    Figure,
    Float32,
    Json,
    ModelFile,
    Params,
    QueryOptions,
    Seed,
    Start,
    TableOptions,
    Time,
)
from .tables import read_points, read_series, state_columns, write_table
from .terminal import conclude


def density(
    query: QueryOptions,
    t: Time,
    x0: Start,
    *,
    x: Annotated[str | None, typer.Option("--x", help="A single point.")] = None,
    points: Annotated[
        Path | None, typer.Option(help="Points, one per row: .csv, or .npz with an array x.")
    ] = None,
    float32: Float32 = False,
    table: TableOptions,
) -> None:
    """Evaluate the log-density at points."""
    from .inputs import parse_point, query_context

    if (x is None) == (points is None):
        raise ValueError("Give either `--x` with one point or `--points` with a file.")
    table.check()
    model, conditioning = query.load()
    start = parse_point("x0", x0, model.dim)
    if points is not None:
        rows = read_points(points, model.dim)
    else:
        rows = parse_point("x", x or "", model.dim)[None]
    with query_context(float32):
        values = np.asarray(model.log_prob(rows, t, start, **conditioning))
    arrays = {"t": np.asarray(t), "x0": start, "x": rows, "log_prob": values}
    table.write(state_columns(rows) | {"log_prob": values}, arrays)


def sample(
    query: QueryOptions,
    t: Time,
    x0: Start,
    *,
    count: Count = 1000,
    seed: Seed = 0,
    float32: Float32 = False,
    table: TableOptions,
) -> None:
    """Draw states from the density."""
    import jax.random as jr

    from .inputs import parse_point, query_context

    table.check()
    model, conditioning = query.load()
    start = parse_point("x0", x0, model.dim)
    with query_context(float32):
        draws = np.asarray(model.sample(jr.key(seed), t, start, count, **conditioning))
    arrays = {"t": np.asarray(t), "x0": start, "seed": np.asarray(seed), "x": draws}
    table.write(state_columns(draws), arrays)


def propagate(
    query: QueryOptions,
    t: Time,
    *,
    law: Annotated[
        str | None, typer.Option(help='Initial law: \'{"law": "Normal", "mean": 0, "std": 1}\'.')
    ] = None,
    draws: Annotated[
        Path | None, typer.Option(help="Draws of the initial law: .csv, or .npz with an array x.")
    ] = None,
    points: Annotated[
        Path | None,
        typer.Option(help="Points to evaluate: .csv, or .npz with an array x; else draw."),
    ] = None,
    count: Count = 1000,
    seed: Seed = 0,
    table: TableOptions,
) -> None:
    """Propagate an initial law: evaluate the resulting density at points, or draw from it."""
    from .inputs import parse_law

    if (law is None) == (draws is None):
        raise ValueError("Give the initial law: either `--law` as JSON or `--draws` with a file.")
    if points is None:
        table.check()
    model, conditioning = query.load()
    initial = read_points(draws, model.dim) if draws is not None else parse_law(law or "")
    found = df.propagate(model, initial, t, **conditioning)
    if points is None:
        x, values = np.asarray(found.sample(seed, (count,))), {}
    else:
        x = read_points(points, model.dim)
        values = {
            "log_prob": np.asarray(found.log_prob(x)),
            "standard_error": np.asarray(found.standard_error(x)),
        }
    table.write(state_columns(x) | values, {"x": x, **values}, outside=found.outside)


def loglik(
    model: ModelFile,
    data: Data,
    params: Params = None,
    sde: Equation = None,
    as_json: Json = False,
) -> None:
    """Compute the log-likelihood of an observed path, given its first state."""
    learned, conditioning = QueryOptions(model, params, sde=sde).load()
    times, states = read_series(data, learned.dim)
    value = float(df.log_likelihood(learned, times, states, conditioning["params"]))
    start_time = times[:-1] if learned.start_time is None else None
    outside = learned.outside(states[:-1], params=conditioning["params"], start_time=start_time)
    transitions = int(np.sum(~np.isnan(states[:, 0]))) - 1
    share = float(np.mean(np.asarray(outside)))
    row = {"log_likelihood": value, "transitions": transitions, "outside": share}
    conclude(row, as_json, f"{value:.10g}  ({transitions} transitions)")


def bridge(
    query: QueryOptions,
    t: Time,
    x0: Start,
    x1: Annotated[str, typer.Option("--x1", help="End point: comma-separated numbers.")],
    *,
    steps: Annotated[int, typer.Option(help="Number of time steps of each path.")] = 200,
    paths: Annotated[int, typer.Option(help="Number of paths.")] = 1000,
    seed: Seed = 0,
    figure: Figure = None,
    table: TableOptions,
) -> None:
    """Draw weighted paths between two points."""
    import jax.random as jr

    from .inputs import parse_point

    table.check(figure)
    model, conditioning = query.load()
    start, end = parse_point("x0", x0, model.dim), parse_point("x1", x1, model.dim)
    found = df.bridge(jr.key(seed), model, start, end, t, steps, paths, **conditioning)
    times, states, log_weights = map(np.asarray, (found.times, found.paths, found.log_weights))
    if table.out is not None:
        count, instants, dim = states.shape
        columns = {
            "path": np.repeat(np.arange(count), instants),
            "time": np.tile(times, count),
            **state_columns(states.reshape(-1, dim)),
            "log_weight": np.repeat(log_weights, instants),
        }
        arrays = {"times": times, "paths": states, "log_weights": log_weights}
        write_table(table.out, columns, arrays)
    if figure is not None:
        df.view.bridge_fan(found).savefig(figure)
    mean = np.asarray(found.mean(lambda path: path))
    deviation = np.sqrt(np.asarray(found.mean(lambda path: (path - mean) ** 2)))
    share, value = found.effective_share, found.log_density
    bands = {"times": times, "means": mean, "deviations": deviation}
    middle = int(np.argmin(np.abs(times - times[-1] / 2)))
    centre, spread = (np.round(values[middle], 4).tolist() for values in (mean, deviation))
    conclude(
        {"effective_share": share, "log_density": value, **bands},
        table.as_json,
        f"paths                  {len(found.paths)}\n"
        f"effective sample size  {share:.3f} of the number of paths\n"
        f"log-density            {value:.4f}  at x1, from the path weights\n"
        f"midpoint               mean {centre}, standard deviation {spread}",
    )
