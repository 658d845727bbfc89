"""Ranges of the sliders: the time, the start, parameters of the SDE, the start time."""

from typing import Any

import jax
import jax.random as jr
import numpy as np

from ..density.learned import LearnedDensity
from ..density.summary import landmarks
from ..sde.conditioning import support
from ..sde.laws import Uniform

# The shortest time, relative to the horizon. At shorter times the density is a narrow peak.
EARLIEST = 1e-3
# Ranges extend beyond the range of these draws by this fraction of it, so that users see where the
# page warns of starts outside the training law.
_DRAWS, _MARGIN = 4096, 0.25


def controls(density: LearnedDensity) -> dict[str, Any]:
    """Return the range and the initial value of every number in a query, in plain Python."""
    centre = landmarks(density.scope.law)["centre"]
    rows = [
        # Four digits, as the sliders show, unless rounding leaves the range.
        {"low": float(a), "high": float(b), "value": float(np.clip(float(f"{v:.4g}"), a, b))}
        for a, b, v in zip(*_ranges(density), centre, strict=True)
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


def _ranges(density: LearnedDensity) -> tuple[np.ndarray, np.ndarray]:
    with jax.enable_x64(True):
        draws = np.asarray(density.scope.law.sample(jr.key(0), (_DRAWS,)))
    low, high = draws.min(axis=0), draws.max(axis=0)
    margin = _MARGIN * (high - low)
    times = density.scope.start_times
    laws = [*density.scope.params, *([] if times is None else [times])]
    ends = [*(part.ends for part in density.sde.domain), *map(support, laws)]
    least, most = np.array(ends).T
    # A range that would leave an open domain ends half way between the outermost draw and the end.
    low_end = np.where(
        low - margin > least, low - margin, (low + np.maximum(least, low - margin)) / 2
    )
    high_end = np.where(
        high + margin < most, high + margin, (high + np.minimum(most, high + margin)) / 2
    )
    # A uniform law of a parameter has no density outside its box; the box includes its ends.
    boxed = np.array([False] * density.dim + [isinstance(law, Uniform) for law in laws])
    return np.where(boxed, least, low_end), np.where(boxed, most, high_end)
