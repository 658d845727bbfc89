"""`diracflow density`: values of a learned density."""

from pathlib import Path
from typing import Any

import numpy as np

from .inputs import load_model, many_rows, parse_point
from .streams import emit
from .tables import as_json, read_points, require_kind, state_columns, write_table


def print_density(
    model: Path,
    t: float,
    x0: str,
    x: str | None,
    points: Path | None,
    given: dict[str, Any],
    out: Path | None,
    sde: str | None,
    json: bool,
    single: bool,
) -> None:
    """Log-densities at one point `x` or at those in the file `points`."""
    if (x is None) == (points is None):
        raise ValueError("Say where: either `--x` with one point or `--points` with a file.")
    require_kind(out)
    density = load_model(model, sde)
    start = parse_point("x0", x0, density.dim)
    if points is not None:
        places = read_points(points, density.dim)
    else:
        places = parse_point("x", x or "", density.dim)[None]
    with many_rows(single):
        values = np.asarray(density.log_prob(places, t, start, **given))
    arrays = {"t": np.asarray(t), "x0": start, "x": places, "log_prob": values}
    if out is not None or not json:
        write_table(out, state_columns(places) | {"log_prob": values}, arrays)
    if json:
        emit(as_json(arrays))
