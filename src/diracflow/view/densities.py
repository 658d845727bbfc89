"""Figures of densities, with or without the exact density."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Unpack

import jax.random as jr
import numpy as np
from jaxtyping import Array, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..density.learned import LearnedDensity
from ..sde.argument_checks import (
    checked_count,
    checked_key,
    checked_number,
    checked_one_point,
    checked_point,
)
from ..transition.transition_density import AbstractTransitionDensity
from ..uses.green import AbstractPropagated
from ..uses.underlying_sde import Conditioning
from .axes import (
    DENSITY_MAP,
    ERROR_MAP,
    EXACT,
    LEARNED,
    LEVELS,
    box_of,
    checked_times,
    fan,
    heat,
    panels,
    plane,
    query_title,
    require_components,
    require_kind,
    style,
)
from .one_panel import draw_law

Plane = Callable[[np.ndarray], Float[Array, "n n"]]
# Number of points along each side of a heat map.
_GRID = 161
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
    times, x0 = checked_times(times), np.asarray(checked_one_point("x0", x0, 1))
    figure, [axes] = panels(3.2 * len(times), 2.8, 1, len(times))
    for axis, t in zip(axes, times, strict=True):
        law = density.at(t, x0, **conditioning)
        draws = law.rvs(2000, random_state=0)
        x = np.linspace(draws.min(), draws.max(), 400)
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
    times, x0 = checked_times(times), np.asarray(checked_one_point("x0", x0, 2))
    figure, [axes] = panels(3.2 * len(times), 2.9, 1, len(times))
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
    draws = [density.sample(jr.key(0), t, x0, (_DRAWS,), **conditioning) for t in times]
    table = np.stack([np.quantile(part, LEVELS, axis=0) for part in draws], axis=1)
    table = np.concatenate([np.broadcast_to(x0, table[:, :1].shape), table], axis=1)
    times = np.concatenate([[0.0], times])
    columns = min(shown, 3)
    rows = -(-shown // columns)
    size = max(4.2, 3.2 * columns), 0.5 + 2.3 * rows
    figure, axes = panels(*size, rows, columns, sharex=True)
    for axis in axes.flat[shown:]:
        axis.set_axis_off()
    for component, axis in enumerate(axes.flat[:shown]):
        fan(axis, times, LEVELS, table[:, :, component])
        name = f"$x_{component + 1}$" if density.dim > 1 else "state $x$"
        axis.set(ylabel=name, xlim=(0, times[-1]))
        if component + columns >= shown:  # the lowest panel of its column
            axis.set_xlabel("time $t$")
            axis.tick_params(labelbottom=True)
    axes[0, 0].set_title(query_title(x0), loc="left")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def joint(
    density: AbstractTransitionDensity,
    exact: AbstractTransitionDensity,
    t: float,
    x0s: Float[np.ndarray, "rows 2"],
    **conditioning: Unpack[Conditioning],
) -> Figure:
    """Draw exact density, learned density and absolute error, one row for each start.

    **Arguments:**

    - `density`, `exact`: the learned and the exact density.
    - `t`, `x0s`: one time, and starts.
    - `params`, `start_time`: as in the density's queries.
    """
    require_components(2, density=density, exact=exact)
    x0s = np.atleast_2d(checked_point("x0s", x0s, 2))
    if x0s.ndim != 2 or not len(x0s):
        raise ValueError(f"`x0s` must be a list of one start or more; got shape {x0s.shape}.")
    rows: list[tuple[str, np.ndarray, Plane, Plane]] = []
    for x0 in np.asarray(x0s, dtype=float):
        true, found = (law.at(t, x0, **conditioning) for law in (exact, density))
        rows.append((query_title(x0, t), box_of(true), true.pdf, found.pdf))
    return comparison(rows)


def section(
    density: AbstractTransitionDensity,
    exact: AbstractTransitionDensity,
    t: float,
    x0: Float[np.ndarray, " d"],
    **conditioning: Unpack[Conditioning],
) -> Figure:
    """Draw the $(x_1, x_2)$ section, with all other components zero, in higher dimensions.

    **Arguments:**

    - `density`, `exact`: the learned and the exact density.
    - `t`, `x0`: one time and one start.
    - `params`, `start_time`: as in the density's queries.
    """
    require_components(None, density=density, exact=exact)
    x0 = np.asarray(checked_one_point("x0", x0, exact.dim))
    box = box_of(exact.at(t, x0, **conditioning))
    rest = len(x0) - 2

    def values(law: AbstractTransitionDensity, x: np.ndarray) -> Float[Array, "n n"]:
        padded = np.concatenate([x, np.zeros((*x.shape[:-1], rest))], axis=-1)
        return law.prob(padded, t, x0, **conditioning)

    title = f"$x_3=\\dots=x_{{{len(x0)}}}=0$, $t={t:.3g}$"
    return comparison([(title, box, partial(values, exact), partial(values, density))])


@style()
def comparison(rows: list[tuple[str, np.ndarray, Plane, Plane]], grid: int = _GRID) -> Figure:
    """Draw rows of exact density, learned density and absolute error.

    **Arguments:**

    - `rows`: for each row a label, a box (lower and upper ends), the exact and the learned density
        as functions of points.
    - `grid`: number of points along each side of a box.
    """
    figure, axes = panels(9.6, 2.9 * len(rows), len(rows), 3)
    for line, (label, box, exact, learned) in zip(axes, rows, strict=True):
        x = plane(box, grid)
        truth, found = np.asarray(exact(x)), np.asarray(learned(x))
        _compared(line, f"{label}\nexact density", (truth, found), box)
    return figure


def _compared(
    axes: Sequence[Axes],
    title: str,
    fields: Sequence[np.ndarray],
    box: np.ndarray,
    names: tuple[str, str] | None = None,
) -> None:
    """Draw an exact and a learned field on one scale, and their absolute difference."""
    exact, learned = fields
    for axis, name, field in zip(axes, (title, "learned density"), fields, strict=False):
        heat(axis, name, field, box, DENSITY_MAP, top=exact.max(), names=names)
    heat(axes[2], "absolute error", np.abs(learned - exact), box, ERROR_MAP, names=names)


@style()
def conditional(
    density: AbstractTransitionDensity,
    exact: AbstractTransitionDensity,
    x0: Float[np.ndarray, " 2"],
    horizon: float,
) -> Figure:
    """Draw the density of $x_1$ given $x_2 = 0$ over time, scaled to a maximum of one.

    **Arguments:**

    - `density`, `exact`: the learned and the exact density.
    - `x0`: one start.
    - `horizon`: last time shown.
    """
    require_components(2, density=density, exact=exact)
    x0, horizon = np.asarray(checked_one_point("x0", x0, 2)), checked_number("horizon", horizon)
    times = np.linspace(horizon / 100, horizon, 100)
    reach = np.abs(box_of(exact.at(horizon, x0))[0]).max()
    x1 = np.linspace(-reach, reach, _GRID)
    x = np.stack([x1, np.zeros_like(x1)], axis=-1)
    fields = [np.asarray(law.prob(x, times[:, None], x0)) for law in (exact, density)]
    fields = [field / field.max(axis=1, keepdims=True) for field in fields]
    figure, [axes] = panels(9.0, 3.2, 1, 3)
    box, names = np.array([[times[0], times[-1]], [-reach, reach]]), ("time $t$", "")
    _compared(axes, f"exact, {query_title(x0)}", fields, box, names)
    axes[0].set_ylabel("$x_1$ given $x_2=0$, each instant scaled to one")
    return figure


@style()
def moulding(
    density: LearnedDensity,
    t: float,
    x0: Float[np.ndarray, " 2"],
    noise: Float[np.ndarray, "n d"],
) -> Figure:
    """Draw samples of the source after each layer of the flow.

    **Arguments:**

    - `density`: a learned density with at least two components.
    - `t`, `x0`: one time and one start.
    - `noise`: standard normal numbers, one sample per row.
    """
    require_kind("density", density, LearnedDensity, "diracflow.learn")
    if density.dim < 2:
        raise ValueError("This figure needs two components; the density has one.")
    stages = np.asarray(density.stages(noise, t, x0))
    last = len(stages) - 1
    lines = -(-len(stages) // 6)  # at most six panels each, of nearly equal number
    columns = -(-len(stages) // lines)
    reach = np.abs(stages[..., :2]).max()
    size = 9.6, 0.6 + 9.0 / columns * lines
    figure, axes = panels(*size, lines, columns, sharex=True, sharey=True)
    for axis in axes.flat[len(stages) :]:
        axis.set_axis_off()
    for index, (axis, points) in enumerate(zip(axes.flat, stages, strict=False)):
        axis.scatter(points[:, 0], points[:, 1], s=1, alpha=0.4, linewidths=0)
        name = "source" if index == 0 else f"after {index} of {last} layers"
        axis.set(title=name, aspect="equal", xlim=(-reach, reach), ylim=(-reach, reach))
    figure.supxlabel("$x_1$")
    figure.supylabel("$x_2$")
    return figure


@style()
def propagated(law: AbstractPropagated, key: Any, points: int = 81) -> Figure:
    """Draw a propagated law: its density in one or two dimensions, else each component's spread.

    **Arguments:**

    - `law`: the result of `diracflow.propagate`.
    - `key`: a random key.
    - `points`: number of points along each axis of a plane; a curve has four times this number.
    """
    require_kind("law", law, AbstractPropagated, "diracflow.propagate")
    figure, [[axis]] = panels(4.2, 3.4)
    draw_law(law, axis, checked_key(key), checked_count("points", points, least=2))
    if law.dim == 2:
        figure.colorbar(axis.collections[0], ax=axis, label="density")
    axis.set_title(f"$t = {float(law.t):g}$", loc="left")
    return figure
