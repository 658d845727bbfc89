"""What can be moved, and how far: the time, the start, parameters of the SDE, the start time."""

from typing import Any

import jax
import jax.random as jr
import numpy as np

from ..density.learned import LearnedDensity
from ..density.summary import landmarks
from ..sde.conditioning import support
from ..sde.laws import Uniform

# The shortest time, as a share of the horizon: below it a density is a spike at its start.
EARLIEST = 1e-3
# Starts can be moved somewhat further out than these many draws lie, to where pictures turn grey.
_DRAWS = 4096
_BEYOND = 0.25


def controls(density: LearnedDensity) -> dict[str, Any]:
    """Ends and first value of every number that a query takes, in plain Python."""
    first = landmarks(density.scope.law)["centre"]
    low, high = _ends(density)
    rows = [
        {"low": float(a), "high": float(b), "value": _short(v, a, b)}
        for a, b, v in zip(low, high, first, strict=True)
    ]
    dim, count = density.dim, len(density.params)
    horizon = density.horizon
    return {
        "t": {"low": EARLIEST * horizon, "high": horizon, "value": horizon / 2},
        "x0": rows[:dim],
        "params": [
            {"name": name, **row}
            for name, row in zip(density.params, rows[dim : dim + count], strict=True)
        ],
        "start_time": rows[dim + count] if density.start_time is None else None,
    }


def _short(value: float, low: float, high: float) -> float:
    """Four digits, as sliders have, unless they lie beyond the ends."""
    return float(np.clip(float(f"{value:.4g}"), low, high))


def _ends(density: LearnedDensity) -> tuple[np.ndarray, np.ndarray]:
    with jax.enable_x64(True):
        draws = np.asarray(density.scope.law.sample(jr.key(0), (_DRAWS,)))
    low, high = draws.min(axis=0), draws.max(axis=0)
    reach = _BEYOND * (high - low)
    least, most = np.array([*_domain(density), *_boxes(density)]).T
    # Inside an open end, half way to it from the outermost draw.
    low_end = np.where(low - reach > least, low - reach, (low + np.maximum(least, low - reach)) / 2)
    high_end = np.where(
        high + reach < most, high + reach, (high + np.minimum(most, high + reach)) / 2
    )
    boxed = np.array([False] * density.dim + [isinstance(law, Uniform) for law in _tail(density)])
    # Beyond a box of parameters there is no density; all of the box is known, faces included.
    return np.where(boxed, least, low_end), np.where(boxed, most, high_end)


def _domain(density: LearnedDensity) -> list[tuple[float, float]]:
    return [part.ends for part in density.sde.domain]


def _boxes(density: LearnedDensity) -> list[tuple[float, float]]:
    return [support(law) for law in _tail(density)]


def _tail(density: LearnedDensity) -> list:
    times = density.scope.start_times
    return [*density.scope.params, *([] if times is None else [times])]
