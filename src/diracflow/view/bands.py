"""Bands between quantiles over time."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from .style import LEARNED

BANDS = ((0.05, 0.95), (0.25, 0.75))


def levels_of(pairs: Sequence[tuple[float, float]]) -> list[float]:
    """The levels of bands with the median, in order."""
    return sorted({0.5, *np.ravel(pairs).tolist()})


def fan(
    axis: Axes, times: np.ndarray, bands: dict, pairs: Sequence[tuple[float, float]] = BANDS
) -> None:
    """Shaded bands, the outermost first, and the median if there is one."""
    for alpha, (low, high) in zip(np.linspace(0.2, 0.4, len(pairs)), pairs, strict=True):
        label = f"{100 * low:g} to {100 * high:g} %"
        axis.fill_between(
            *(times, bands[low], bands[high]),
            color=LEARNED,
            alpha=float(alpha),
            linewidth=0,
            label=label,
        )
    if 0.5 in bands:
        axis.plot(times, bands[0.5], color=LEARNED, linewidth=0.8, linestyle=":", label="median")
