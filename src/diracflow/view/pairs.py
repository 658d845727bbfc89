"""A figure of all pairs of components, by draws."""

from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..sde.argument_checks import checked_number
from ..transition.transition_density import AbstractTransitionDensity, require_density
from .axes import point_text
from .figure_checks import checked_start
from .style import DENSITY_MAP, EXACT, LEARNED, new_figure, style

_DRAWS, _BARS, _TILES = 20_000, 50, 40
# Quantiles of the draws between which each component is shown.
_SHOWN = (0.001, 0.999)


def pairs(
    density: AbstractTransitionDensity,
    exact: AbstractTransitionDensity | None,
    t: float,
    x0: Float[np.ndarray, " d"],
    *,
    components: int = 6,
    **given: Any,
) -> Figure:
    """Marginals of two components or more at one time, by 20000 draws: each on the diagonal, pairs
    below; the exact ones dashed, where known.

    `given` holds the keywords `params` and `start_time` of a query.
    """
    require_density(density)
    x0, t = checked_start(x0, density.dim), checked_number("t", t)
    shown = min(components, density.dim)
    if shown < 2:
        raise ValueError("This figure is of two components or more; `lines` shows one.")
    draws = density.at(t, x0, **given).rvs(_DRAWS, random_state=0)
    truth = None if exact is None else exact.at(t, x0, **given).rvs(_DRAWS, random_state=1)
    ends = np.quantile(draws, _SHOWN, axis=0).T
    with style():
        figure = new_figure(1.4 + 1.35 * shown, 0.8 + 1.35 * shown)
        axes = figure.subplots(shown, shown, squeeze=False, sharex="col")
        for row, line in enumerate(axes):
            for column, axis in enumerate(line):
                if column > row:
                    axis.set_visible(False)
                elif column == row:
                    _bars(axis, draws[:, row], truth if truth is None else truth[:, row], ends[row])
                else:
                    _tiles(axis, draws[:, [column, row]], ends[[column, row]])
                _label(axis, row, column, row == shown - 1)
        axes[0, 0].set_title(f"{point_text(x0)}, $t={t:.3g}$", loc="left")
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="upper right")
        return figure


def _bars(axis: Axes, draws: np.ndarray, truth: np.ndarray | None, ends: np.ndarray) -> None:
    bins = np.linspace(ends[0], ends[1], _BARS + 1)
    axis.hist(
        draws,
        bins.tolist(),
        density=True,
        histtype="stepfilled",
        color=LEARNED,
        alpha=0.6,
        label="learned",
    )
    if truth is not None:
        heights, _ = np.histogram(truth, bins, density=True)
        middles = (bins[1:] + bins[:-1]) / 2
        axis.plot(middles, heights, "--", color=EXACT, linewidth=1, label="exact")
    axis.set_yticks([])


def _tiles(axis: Axes, draws: np.ndarray, ends: np.ndarray) -> None:
    # Pixels within vector graphics: thousands of tiles would make them slow.
    across, up = draws.T
    axis.hist2d(across, up, bins=_TILES, range=ends.tolist(), cmap=DENSITY_MAP, rasterized=True)
    axis.yaxis.set_major_locator(MaxNLocator(3))


def _label(axis: Axes, row: int, column: int, last: bool) -> None:
    axis.xaxis.set_major_locator(MaxNLocator(3))
    if last:
        axis.set_xlabel(f"$x_{{{column + 1}}}$")
    if column == 0 < row:
        axis.set_ylabel(f"$x_{{{row + 1}}}$")
    elif axis.get_visible():
        axis.tick_params(labelleft=False)
