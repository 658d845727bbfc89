"""Figures of densities over time from one start, with or without the exact ones.

Where a density depends on parameters of the SDE or on the time of the start, `given` holds the
keywords `params` and `start_time` of its queries.
"""

from collections.abc import Sequence
from typing import Any

import jax.random as jr
import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from ..transition.transition_density import AbstractTransitionDensity
from .axes import box_of, heat, plane, point_text
from .bands import BANDS, fan, levels_of
from .figure_checks import checked_start, checked_times, require_components
from .style import DENSITY_MAP, EXACT, LEARNED, new_figure, style

_POINTS = 400
# Of the bands over time: times, and draws at each.
_TIMES, _DRAWS = 60, 2000


def lines(
    density: AbstractTransitionDensity,
    exact: AbstractTransitionDensity | None,
    times: Sequence[float],
    x0: Float[np.ndarray, " 1"],
    **given: Any,
) -> Figure:
    """Densities of one component at some times; the exact ones dashed, where known."""
    laws = {"density": density} | ({} if exact is None else {"exact": exact})
    require_components(1, **laws)
    times, x0 = checked_times(times), checked_start(x0, 1)
    with style():
        figure = new_figure(3.2 * len(times), 2.8)
        axes = figure.subplots(1, len(times), squeeze=False)[0]
        for axis, t in zip(axes, times, strict=True):
            law = density.at(t, x0, **given)
            draws = law.rvs(2000, random_state=0)
            x = np.linspace(draws.min(), draws.max(), _POINTS)
            found = law.pdf(x[:, None])
            # Broad, so that an exact curve on top of it leaves it to be seen.
            axis.plot(x, found, color=LEARNED, linewidth=3.5, alpha=0.7, label="learned")
            if exact is not None:
                truth = exact.at(t, x0, **given).pdf(x[:, None])
                axis.plot(x, truth, "--", color=EXACT, linewidth=1, label="exact")
            title = f"{point_text(x0)}, $t={t:.3g}$"
            axis.set(title=title, xlabel="state $x$", ylim=(0, None))
        axes[0].set_ylabel("density of the state")
        # Outside: a peak may stand anywhere within.
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
        return figure


def planes(
    density: AbstractTransitionDensity,
    times: Sequence[float],
    x0: Float[np.ndarray, " 2"],
    **given: Any,
) -> Figure:
    """Densities in the plane at some times, each in its own box and with its own scale."""
    require_components(2, density=density)
    times, x0 = checked_times(times), checked_start(x0, 2)
    with style():
        figure = new_figure(3.2 * len(times), 2.9)
        axes = figure.subplots(1, len(times), squeeze=False)[0]
        for axis, t in zip(axes, times, strict=True):
            law = density.at(t, x0, **given)
            box = box_of(law)
            values = np.asarray(law.pdf(plane(box, 121)))
            label = "density" if axis is axes[-1] else ""
            title = f"{point_text(x0)}, $t={t:.3g}$"
            heat(axis, title, values, box, DENSITY_MAP, label=label)
        return figure


def spread(
    density: AbstractTransitionDensity,
    x0: Float[np.ndarray, " d"],
    until: float | None = None,
    *,
    components: int = 6,
    **given: Any,
) -> Figure:
    """Quantiles of each component from the start to the horizon, by samples; in any dimension.

    `until` is an earlier end; exact densities, which have no horizon, need one.
    """
    end = density.horizon if until is None else until
    if not np.isfinite(end):
        raise ValueError("This density has no horizon; pass the last time shown, `until`.")
    shown = min(components, density.dim)
    # Even in the square root of time, in which widths grow evenly at first.
    times = end * np.linspace(0, 1, _TIMES + 1)[1:] ** 2
    # The same noise at all times, so that bands are as smooth as the density is.
    draws = [density.sample(jr.key(0), t, np.asarray(x0), (_DRAWS,), **given) for t in times]
    table = np.stack([np.quantile(part, levels_of(BANDS), axis=0) for part in draws], axis=1)
    begun = np.concatenate([np.broadcast_to(x0, table[:, :1].shape), table], axis=1)
    clock = np.concatenate([[0.0], times])
    columns = min(shown, 3)
    rows = -(-shown // columns)
    with style():
        figure = new_figure(max(4.2, 3.2 * columns), 0.5 + 2.3 * rows)
        axes = figure.subplots(rows, columns, squeeze=False, sharex=True).ravel()
        for component, axis in enumerate(axes):
            if component >= shown:
                axis.set_axis_off()
                continue
            bands = dict(zip(levels_of(BANDS), begun[:, :, component], strict=True))
            fan(axis, clock, bands)
            name = f"$x_{component + 1}$" if density.dim > 1 else "state $x$"
            axis.set(ylabel=name, xlim=(0, clock[-1]))
            if component + columns >= shown:  # none below
                axis.set_xlabel("time $t$")
                axis.tick_params(labelbottom=True)
        axes[0].set_title(point_text(x0), loc="left")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
        return figure
