"""`diracflow bridge`: weighted paths between two points.

JAX is imported when the command runs, so that `--help` does not wait for it.
"""

from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from .options import Figure, QueryOptions, Seed, Start, TableOptions, Time
from .results import emit_json, require_figure, state_columns, write_table
from .streams import emit

if TYPE_CHECKING:
    from ..uses.bridges import Bridge


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

    from ..uses import bridges
    from .inputs import parse_point

    table.check()
    require_figure(figure)
    conditioning, model = query.conditioning(), query.load()
    start, end = parse_point("x0", x0, model.dim), parse_point("x1", x1, model.dim)
    found = bridges.bridge(jr.key(seed), model, start, end, t, steps, paths, **conditioning)
    if table.out is not None:
        write_table(table.out, _columns(found), _arrays(found))
    if figure is not None:
        from ..view import bridge_fan

        bridge_fan(found).savefig(figure)
    summary = _summary(found)
    if table.as_json:
        emit_json(summary)
    else:
        emit(_text(summary, len(found.paths)))


def _summary(found: "Bridge") -> dict[str, Any]:
    mean = np.asarray(found.mean(lambda path: path))
    variance = np.asarray(found.mean(lambda path: (path - mean) ** 2))
    return {
        "effective_share": found.effective_share,
        "log_density": found.log_density,
        "times": np.asarray(found.times),
        "means": mean,
        "deviations": np.sqrt(variance),
    }


def _text(summary: dict[str, Any], paths: int) -> str:
    times = summary["times"]
    middle = int(np.argmin(np.abs(times - times[-1] / 2)))
    mean, deviation = (np.round(summary[name][middle], 4) for name in ("means", "deviations"))
    return "\n".join(
        [
            f"paths                  {paths}",
            f"effective sample size  {summary['effective_share']:.3f} of the number of paths",
            f"log-density            {summary['log_density']:.4f}  at x1, from the path weights",
            f"midpoint               mean {mean.tolist()}, standard deviation {deviation.tolist()}",
        ]
    )


def _arrays(found: "Bridge") -> dict[str, np.ndarray]:
    names = ("times", "paths", "log_weights")
    return {name: np.asarray(getattr(found, name)) for name in names}


def _columns(found: "Bridge") -> dict[str, np.ndarray]:
    """Return one row for each path and time."""
    count, instants, dim = found.paths.shape
    return {
        "path": np.repeat(np.arange(count), instants),
        "time": np.tile(np.asarray(found.times), count),
        **state_columns(np.asarray(found.paths).reshape(-1, dim)),
        "log_weight": np.repeat(np.asarray(found.log_weights), instants),
    }
