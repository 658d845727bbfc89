"""`diracflow bridge`: paths between two points."""

from pathlib import Path
from typing import Any

import jax.random as jr
import numpy as np

from ..uses.bridges import Bridge, bridge
from .inputs import load_model, parse_point
from .output_paths import require_figure
from .streams import emit
from .tables import as_json, require_kind, state_columns, write_table


def print_bridge(
    model: Path,
    ends: tuple[str, str],
    t: float,
    steps: int,
    paths: int,
    seed: int,
    given: dict[str, Any],
    out: Path | None,
    figure: Path | None,
    sde: str | None,
    json: bool,
) -> None:
    """Weighted paths into a file, their mean and deviation in words or as JSON."""
    require_kind(out)
    require_figure(figure)
    density = load_model(model, sde)
    x0, x1 = (
        parse_point(name, text, density.dim) for name, text in zip(("x0", "x1"), ends, strict=True)
    )
    found = bridge(jr.key(seed), density, x0, x1, t, steps, paths, **given)
    if out is not None:
        write_table(out, _columns(found), _arrays(found))
    if figure is not None:
        from ..view import bridge_fan  # needs matplotlib

        bridge_fan(found).savefig(figure)
    emit(as_json(_summary(found)) if json else _words(found))


def _summary(found: Bridge) -> dict:
    mean = np.asarray(found.mean(lambda path: path))
    square = np.asarray(found.mean(lambda path: (path - mean) ** 2))
    return {
        "effective_share": found.effective_share,
        "log_density": found.log_density,
        "times": np.asarray(found.times),
        "means": mean,
        "deviations": np.sqrt(square),
    }


def _words(found: Bridge) -> str:
    summary = _summary(found)
    middle = int(np.argmin(np.abs(found.times - found.times[-1] / 2)))
    mean, deviation = (np.round(summary[name][middle], 4) for name in ("means", "deviations"))
    return "\n".join(
        [
            f"paths            {len(found.paths)}",
            f"effective share  {found.effective_share:.3f}",
            f"log-density      {found.log_density:.4f}  of the end, estimated by the weights",
            f"half way         mean {mean.tolist()}, deviation {deviation.tolist()}",
        ]
    )


def _arrays(found: Bridge) -> dict[str, np.ndarray]:
    names = ("times", "paths", "log_weights")
    return {name: np.asarray(getattr(found, name)) for name in names}


def _columns(found: Bridge) -> dict[str, np.ndarray]:
    """A row for each path and time."""
    count, instants, dim = found.paths.shape
    states = np.asarray(found.paths).reshape(-1, dim)
    return {
        "path": np.repeat(np.arange(count), instants),
        "time": np.tile(np.asarray(found.times), count),
        **state_columns(states),
        "log_weight": np.repeat(np.asarray(found.log_weights), instants),
    }
