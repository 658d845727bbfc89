"""Figures of posteriors and of propagated laws."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..sde.argument_checks import checked_count, checked_key
from ..uses.green import AbstractPropagated
from .figure_checks import require_kind
from .style import EXACT, LEARNED, new_figure, style

# Quantiles of draws between which a law is shown.
_SHOWN = (0.002, 0.998)


def posterior_pairs(tree: Any, truth: dict[str, float] | None = None) -> Figure:
    """Histograms of the parameters on the diagonal, their pairs below; `truth` where known."""
    try:
        posterior = tree["posterior"]
    except (TypeError, KeyError, IndexError):
        raise ValueError(
            "`tree` must come from `diracflow.infer`, with a group `posterior`; got "
            f"{type(tree).__name__}."
        ) from None
    names = list(posterior.data_vars)
    draws = {name: np.asarray(posterior[name]).ravel() for name in names}
    with style():
        figure = new_figure(2.0 * len(names) + 0.6, 2.0 * len(names) + 0.4)
        axes = figure.subplots(len(names), len(names), squeeze=False, sharex="col")
        for row, below in enumerate(names):
            for column, across in enumerate(names):
                axis = axes[row, column]
                if column > row:
                    axis.set_visible(False)
                elif column == row:
                    axis.hist(draws[across], bins=40, color=LEARNED, density=True)
                    axis.set_yticks([])
                else:
                    axis.plot(draws[across], draws[below], ",", color=LEARNED, alpha=0.5)
                _label(axis, across, below, row == len(names) - 1, column == 0 < row)
                if truth is not None:
                    _mark(axis, truth, across, None if row == column else below)
        return figure


def propagated(law: AbstractPropagated, key: Any, points: int = 81) -> Figure:
    """The density of a propagated law: a curve in one dimension, else two components of it."""
    require_kind("law", law, AbstractPropagated, "diracflow.propagate")
    key, points = checked_key(key), checked_count("points", points, least=2)
    draws = np.asarray(law.sample(key, (2000,)))
    low, high = np.quantile(draws, _SHOWN, axis=0)
    with style():
        figure = new_figure(4.2, 3.4)
        axis = figure.subplots()
        if draws.shape[1] == 1:
            x = np.linspace(low[0], high[0], 4 * points)
            axis.plot(x, np.asarray(law.prob(x[:, None])), color=LEARNED)
            axis.set(xlabel="$x$", ylabel="density")
        elif draws.shape[1] == 2:
            sides = [np.linspace(low[i], high[i], points) for i in range(2)]
            grid = np.stack(np.meshgrid(*sides, indexing="ij"), axis=-1)
            shown = axis.pcolormesh(*sides, np.asarray(law.prob(grid)).T, shading="gouraud")
            figure.colorbar(shown, ax=axis, label="density")
            axis.set(xlabel="$x_1$", ylabel="$x_2$")
        else:
            axis.plot(draws[:, 0], draws[:, 1], ".", color=LEARNED, markersize=2)
            axis.set(xlabel="$x_1$", ylabel="$x_2$")
        axis.set_title(f"$t = {float(law.t):g}$", loc="left")
        return figure


def _label(axis: Axes, across: str, below: str, last: bool, first: bool) -> None:
    if last:
        axis.set_xlabel(across)
    if first:
        axis.set_ylabel(below)
    elif axis.get_visible():
        axis.tick_params(labelleft=False)


def _mark(axis: Axes, truth: dict[str, float], across: str, below: str | None) -> None:
    if across in truth:
        axis.axvline(truth[across], color=EXACT, linewidth=1)
    if below is not None and below in truth:
        axis.axhline(truth[below], color=EXACT, linewidth=1)
