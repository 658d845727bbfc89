"""Figures of densities over time from one start, with or without the exact density."""

from collections.abc import Sequence
from typing import Unpack

import jax.random as jr
import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from ..transition.transition_density import AbstractTransitionDensity
from ..uses.underlying_sde import Conditioning
from .axes import BANDS, box_of, fan, heat, levels_of, plane, point_text, query_title
from .figure_checks import checked_start, checked_times, require_components
from .style import DENSITY_MAP, EXACT, LEARNED, new_figure, style

_POINTS = 400
# Number of times at which quantile bands are computed, and of draws at each.
_TIMES, _DRAWS = 60, 2000


@style()
def lines(
    density: AbstractTransitionDensity,
    exact: AbstractTransitionDensity | None,
    times: Sequence[float],
    x0: Float[np.ndarray, " 1"],
    **conditioning: Unpack[Conditioning],
) -> Figure:
    """Draw one-dimensional densities, one panel for each time.

    **Arguments:**

    - `density`: the density, drawn as a broad line.
    - `exact`: the exact density, drawn as a dashed line, or `None`.
    - `times`, `x0`: times and one start.
    - `params`, `start_time`: as in the density's queries.
    """
    laws = {"density": density} | ({} if exact is None else {"exact": exact})
    require_components(1, **laws)
    times, x0 = checked_times(times), checked_start(x0, 1)
    figure = new_figure(3.2 * len(times), 2.8)
    axes = figure.subplots(1, len(times), squeeze=False)[0]
    for axis, t in zip(axes, times, strict=True):
        law = density.at(t, x0, **conditioning)
        draws = law.rvs(2000, random_state=0)
        x = np.linspace(draws.min(), draws.max(), _POINTS)
        # Broad, so that it stays visible under the exact curve.
        found = law.pdf(x[:, None])
        axis.plot(x, found, color=LEARNED, linewidth=3.5, alpha=0.7, label="learned")
        if exact is not None:
            truth = exact.at(t, x0, **conditioning).pdf(x[:, None])
            axis.plot(x, truth, "--", color=EXACT, linewidth=1, label="exact")
        axis.set(title=query_title(x0, t), xlabel="state $x$", ylim=(0, None))
    axes[0].set_ylabel("density of the state")
    # Outside of the panels, because a peak may lie anywhere within.
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


@style()
def planes(
    density: AbstractTransitionDensity,
    times: Sequence[float],
    x0: Float[np.ndarray, " 2"],
    **conditioning: Unpack[Conditioning],
) -> Figure:
    """Draw two-dimensional densities, one panel for each time, each with its own box and scale.

    **Arguments:**

    - `density`: the density.
    - `times`, `x0`: times and one start.
    - `params`, `start_time`: as in the density's queries.
    """
    require_components(2, density=density)
    times, x0 = checked_times(times), checked_start(x0, 2)
    figure = new_figure(3.2 * len(times), 2.9)
    axes = figure.subplots(1, len(times), squeeze=False)[0]
    for axis, t in zip(axes, times, strict=True):
        law = density.at(t, x0, **conditioning)
        box = box_of(law)
        values = np.asarray(law.pdf(plane(box, 121)))
        label = "density" if axis is axes[-1] else ""
        heat(axis, query_title(x0, t), values, box, DENSITY_MAP, label=label)
    return figure


@style()
def spread(
    density: AbstractTransitionDensity,
    x0: Float[np.ndarray, " d"],
    until: float | None = None,
    *,
    components: int = 6,
    **conditioning: Unpack[Conditioning],
) -> Figure:
    """Draw quantiles of each component over time, from draws, in any dimension.

    **Arguments:**

    - `density`: the density.
    - `x0`: one start.
    - `until`: last time; by default the horizon. Exact densities have no horizon and need it.
    - `components`: largest number of components shown.
    - `params`, `start_time`: as in the density's queries.
    """
    end = density.horizon if until is None else until
    if not np.isfinite(end):
        raise ValueError("This density has no horizon; pass the last time shown, `until`.")
    shown = min(components, density.dim)
    # Even in the square root of time, in which standard deviations grow linearly at first.
    times = end * np.linspace(0, 1, _TIMES + 1)[1:] ** 2
    # The same noise at all times makes the bands as smooth as the density.
    draws = [density.sample(jr.key(0), t, np.asarray(x0), (_DRAWS,), **conditioning) for t in times]
    table = np.stack([np.quantile(part, levels_of(BANDS), axis=0) for part in draws], axis=1)
    table = np.concatenate([np.broadcast_to(x0, table[:, :1].shape), table], axis=1)
    times = np.concatenate([[0.0], times])
    columns = min(shown, 3)
    rows = -(-shown // columns)
    figure = new_figure(max(4.2, 3.2 * columns), 0.5 + 2.3 * rows)
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True).ravel()
    for axis in axes[shown:]:
        axis.set_axis_off()
    for component, axis in enumerate(axes[:shown]):
        fan(axis, times, dict(zip(levels_of(BANDS), table[:, :, component], strict=True)))
        name = f"$x_{component + 1}$" if density.dim > 1 else "state $x$"
        axis.set(ylabel=name, xlim=(0, times[-1]))
        if component + columns >= shown:  # the lowest panel of its column
            axis.set_xlabel("time $t$")
            axis.tick_params(labelbottom=True)
    axes[0].set_title(point_text(x0), loc="left")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure
