"""Figures of all pairs of components of a state, or of parameters, from draws."""

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..sde.argument_checks import checked_number, checked_one_point
from ..transition.transition_density import AbstractTransitionDensity, require_density
from ..uses.underlying_sde import Conditioning
from .axes import DENSITY_MAP, EXACT, LEARNED, panels, query_title, style

_DRAWS, _BARS, _TILES = 20_000, 50, 40
# Quantiles of the draws between which each component is shown.
_SHOWN = (0.001, 0.999)


@style()
def pairs(
    density: AbstractTransitionDensity,
    exact: AbstractTransitionDensity | None,
    t: float,
    x0: Float[np.ndarray, " d"],
    *,
    components: int = 6,
    **conditioning: Unpack[Conditioning],
) -> Figure:
    """Draw the marginals of all components on the diagonal and of all pairs below it.

    **Arguments:**

    - `density`: a density with at least two components; 20000 draws are shown.
    - `exact`: the exact density, drawn as dashed lines, or `None`.
    - `t`, `x0`: one time and one start.
    - `components`: largest number of components shown.
    - `params`, `start_time`: as in the density's queries.
    """
    require_density(density)
    x0, t = np.asarray(checked_one_point("x0", x0, density.dim)), checked_number("t", t)
    shown = min(components, density.dim)
    if shown < 2:
        raise ValueError("This figure needs two components or more; use `lines` for one.")
    draws = density.at(t, x0, **conditioning).rvs(_DRAWS, random_state=0)
    truth = None if exact is None else exact.at(t, x0, **conditioning).rvs(_DRAWS, random_state=1)
    ends = np.quantile(draws, _SHOWN, axis=0).T
    names = [f"$x_{{{i + 1}}}$" for i in range(shown)]
    figure, axes = _triangle(names, 1.4 + 1.35 * shown, 0.8 + 1.35 * shown)
    for (row, column), axis in axes.items():
        axis.xaxis.set_major_locator(MaxNLocator(3))
        if column != row:
            # Rasterised: thousands of tiles would make vector graphics slow.
            look: Any = {"range": ends[[column, row]], "cmap": DENSITY_MAP, "rasterized": True}
            axis.hist2d(draws[:, column], draws[:, row], bins=_TILES, **look)
            axis.yaxis.set_major_locator(MaxNLocator(3))
            continue
        bins = np.linspace(ends[row, 0], ends[row, 1], _BARS + 1)
        look = {"histtype": "stepfilled", "color": LEARNED, "alpha": 0.6}
        axis.hist(draws[:, row], bins.tolist(), density=True, label="learned", **look)
        if truth is not None:
            heights, _ = np.histogram(truth[:, row], bins, density=True)
            middles = (bins[1:] + bins[:-1]) / 2
            axis.plot(middles, heights, "--", color=EXACT, linewidth=1, label="exact")
        axis.set_yticks([])
    axes[0, 0].set_title(query_title(x0, t), loc="left")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper right")
    return figure


@style()
def posterior_pairs(tree: Any, truth: dict[str, float] | None = None) -> Figure:
    """Draw histograms of the parameters on the diagonal, and scatter plots of pairs below it.

    **Arguments:**

    - `tree`: the result of `diracflow.infer`.
    - `truth`: true values of some or all parameters, drawn as lines.
    """
    try:
        posterior = tree["posterior"]
    except (TypeError, KeyError, IndexError):
        raise ValueError(
            "`tree` must come from `diracflow.infer`, with a group `posterior`; got "
            f"{type(tree).__name__}."
        ) from None
    names = list(posterior.data_vars)
    draws = [np.asarray(posterior[name]).ravel() for name in names]
    known: list[Any] = [(truth or {}).get(name) for name in names]
    figure, axes = _triangle(names, 2.0 * len(names) + 0.6, 2.0 * len(names) + 0.4)
    for (row, column), axis in axes.items():
        if column == row:
            axis.hist(draws[row], bins=40, color=LEARNED, density=True)
            axis.set_yticks([])
        else:
            axis.plot(draws[column], draws[row], ",", color=LEARNED, alpha=0.5)
        if known[column] is not None:
            axis.axvline(known[column], color=EXACT, linewidth=1)
        if column != row and known[row] is not None:
            axis.axhline(known[row], color=EXACT, linewidth=1)
    return figure


def _triangle(
    names: Sequence[str], width: float, height: float
) -> tuple[Figure, dict[tuple[int, int], Axes]]:
    """Return a figure with labelled panels on and below the diagonal, by row and column."""
    figure, axes = panels(width, height, len(names), len(names), sharex="col")
    for (row, column), axis in np.ndenumerate(axes):
        if column > row:
            axis.set_visible(False)
            continue
        if row == len(names) - 1:
            axis.set_xlabel(names[column])
        if column == 0 < row:
            axis.set_ylabel(names[row])
        else:
            axis.tick_params(labelleft=False)
    return figure, {index: axis for index, axis in np.ndenumerate(axes) if index[1] <= index[0]}
