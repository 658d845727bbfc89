"""Figures of densities over time from one start, with or without the exact ones."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from ..problem.transition import AbstractTransitionDensity
from .densities import _box, _heat, _plane
from .style import DENSITY_MAP, LEARNED, SOURCE, new_figure, style
from .subjects import checked_start, checked_times, require_components

_POINTS = 400


def lines(
    density: AbstractTransitionDensity,
    exact: AbstractTransitionDensity | None,
    times: Sequence[float],
    x0: Float[np.ndarray, " 1"],
) -> Figure:
    """Densities of one component at some times; the exact ones dashed, where known."""
    laws = {"density": density} | ({} if exact is None else {"exact": exact})
    require_components(1, **laws)
    times, x0 = checked_times(times), checked_start(x0, 1)
    with style():
        figure = new_figure(3.2 * len(times), 2.8)
        for axis, t in zip(figure.subplots(1, len(times), squeeze=False)[0], times, strict=True):
            draws = density.at(t, x0).rvs(2000, random_state=0)
            x = np.linspace(draws.min(), draws.max(), _POINTS)
            axis.plot(x, density.at(t, x0).pdf(x[:, None]), color=LEARNED, label="learned")
            if exact is not None:
                truth = exact.at(t, x0).pdf(x[:, None])
                axis.plot(x, truth, "--", color=SOURCE, label="exact")
            axis.set(title=f"$x_0={x0[0]:.3g}$, $t={t:.3g}$", xlabel="$x$", ylim=(0, None))
            axis.legend()
        return figure


def planes(
    density: AbstractTransitionDensity, times: Sequence[float], x0: Float[np.ndarray, " 2"]
) -> Figure:
    """Densities in the plane at some times."""
    require_components(2, density=density)
    times, x0 = checked_times(times), checked_start(x0, 2)
    with style():
        figure = new_figure(3.2 * len(times), 2.9)
        for axis, t in zip(figure.subplots(1, len(times), squeeze=False)[0], times, strict=True):
            box = _box(density, t, x0)
            values = np.asarray(density.at(t, x0).pdf(_plane(box, 121)))
            title = f"$x_0=({x0[0]:.3g}, {x0[1]:.3g})$, $t={t:.3g}$"
            _heat(axis, title, values, box, DENSITY_MAP, None)
        return figure
