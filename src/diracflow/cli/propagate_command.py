"""`diracflow propagate`: the law that an initial law becomes."""

from pathlib import Path
from typing import Any

import jax.random as jr
import numpy as np

from ..uses.green import AbstractPropagated, propagate
from .inputs import load_model
from .streams import emit
from .tables import as_json, read_points, require_kind, state_columns, write_table
from .user_problem import read_law


def print_propagated(
    model: Path,
    t: float,
    law: str | None,
    draws: Path | None,
    points: Path | None,
    count: int,
    seed: int,
    given: dict[str, Any],
    out: Path | None,
    sde: str | None,
    json: bool,
) -> None:
    """Log-densities at the points of a file, or draws, of the propagated law."""
    if (law is None) == (draws is None):
        raise ValueError("Say from where: either `--law` as JSON or `--draws` with a file.")
    require_kind(out)
    density = load_model(model, sde)
    initial = read_points(draws, density.dim) if draws is not None else read_law(law or "")
    found = propagate(density, initial, t, **given)
    arrays = _evaluated(found, points, count, seed, density.dim)
    if out is not None or not json:
        rest = {name: a for name, a in arrays.items() if name != "x"}
        write_table(out, state_columns(arrays["x"]) | rest, arrays)
    if json:
        emit(as_json({"outside": found.outside, **arrays}))


def _evaluated(
    found: AbstractPropagated, points: Path | None, count: int, seed: int, dim: int
) -> dict[str, Any]:
    if points is None:
        if count < 1:
            raise ValueError(f"`--count` must be at least 1; got {count}.")
        return {"x": np.asarray(found.sample(jr.key(seed), (count,)))}
    x = read_points(points, dim)
    return {
        "x": x,
        "log_prob": np.asarray(found.log_prob(x)),
        "standard_error": np.asarray(found.standard_error(x)),
    }
