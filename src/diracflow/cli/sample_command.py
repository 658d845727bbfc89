"""`diracflow sample`: draws from a learned density."""

from pathlib import Path
from typing import Any

import jax.random as jr
import numpy as np

from .inputs import load_model, many_rows, parse_point
from .streams import emit
from .tables import as_json, require_kind, state_columns, write_table


def print_sample(
    model: Path,
    t: float,
    x0: str,
    count: int,
    seed: int,
    given: dict[str, Any],
    out: Path | None,
    sde: str | None,
    json: bool,
    single: bool,
) -> None:
    """Independent draws of the state a time `t` after `x0`."""
    if count < 1:
        raise ValueError(f"`--count` must be at least 1; got {count}.")
    require_kind(out)
    density = load_model(model, sde)
    start = parse_point("x0", x0, density.dim)
    with many_rows(single):
        draws = np.asarray(density.sample(jr.key(seed), t, start, count, **given))
    arrays = {"t": np.asarray(t), "x0": start, "seed": np.asarray(seed), "x": draws}
    if out is not None or not json:
        write_table(out, state_columns(draws), arrays)
    if json:
        emit(as_json(arrays))
