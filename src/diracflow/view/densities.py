"""Figures of two-dimensional densities: exact, learned and their difference."""

from collections.abc import Callable
from typing import Any, Unpack

import numpy as np
from jaxtyping import Array, Float
from matplotlib.figure import Figure

from ..density.learned import LearnedDensity
from ..sde.argument_checks import checked_count, checked_key, checked_number, checked_point
from ..transition.transition_density import AbstractTransitionDensity
from ..uses.green import AbstractPropagated
from ..uses.underlying_sde import Conditioning
from .axes import box_of, colour_bar, heat, plane, point_text, query_title
from .figure_checks import checked_start, require_components, require_kind
from .style import DENSITY_MAP, ERROR_MAP, LEARNED, new_figure, style

Plane = Callable[[np.ndarray], Float[Array, "n n"]]
_GRID = 161
# Quantiles of draws between which a propagated law is shown.
_SHOWN = (0.002, 0.998)


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
    x0 = checked_start(x0, exact.dim)
    box = box_of(exact.at(t, x0, **conditioning))
    rest = len(x0) - 2

    def cut(law: AbstractTransitionDensity) -> Plane:
        def values(x: Float[np.ndarray, "n n 2"]) -> Float[Array, "n n"]:
            padded = np.concatenate([x, np.zeros((*x.shape[:-1], rest))], axis=-1)
            return law.prob(padded, t, x0, **conditioning)

        return values

    zeros = f"$x_3=\\dots=x_{{{len(x0)}}}=0$"
    return comparison([(f"{zeros}, $t={t:.3g}$", box, cut(exact), cut(density))])


@style()
def comparison(rows: list[tuple[str, np.ndarray, Plane, Plane]], grid: int = _GRID) -> Figure:
    """Draw rows of exact density, learned density and absolute error.

    **Arguments:**

    - `rows`: for each row a label, a box (lower and upper ends), the exact and the learned density
        as functions of points.
    - `grid`: number of points along each side of a box.
    """
    figure = new_figure(9.6, 2.9 * len(rows))
    axes = figure.subplots(len(rows), 3, squeeze=False)
    for line, (label, box, exact, learned) in zip(axes, rows, strict=True):
        x = plane(box, grid)
        truth, found = np.asarray(exact(x)), np.asarray(learned(x))
        heat(line[0], f"{label}\nexact density", truth, box, DENSITY_MAP, truth.max())
        heat(line[1], "learned density", found, box, DENSITY_MAP, truth.max())
        heat(line[2], "absolute error", np.abs(found - truth), box, ERROR_MAP)
    return figure


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
    x0, horizon = checked_start(x0, 2), checked_number("horizon", horizon)
    times = np.linspace(horizon / 100, horizon, 100)
    reach = np.abs(box_of(exact.at(horizon, x0))[0]).max()
    x1 = np.linspace(-reach, reach, _GRID)
    x = np.stack([x1, np.zeros_like(x1)], axis=-1)
    fields = [np.asarray(law.prob(x, times[:, None], x0)) for law in (exact, density)]
    fields = [field / field.max(axis=1, keepdims=True) for field in fields]
    panels = {
        f"exact, {point_text(x0)}": (fields[0], DENSITY_MAP),
        "learned": (fields[1], DENSITY_MAP),
        "absolute difference": (np.abs(fields[1] - fields[0]), ERROR_MAP),
    }
    figure = new_figure(9.0, 3.2)
    axes = figure.subplots(1, 3)
    extent = (times[0], times[-1], -reach, reach)
    for axis, (title, (field, colours)) in zip(axes, panels.items(), strict=True):
        top = field.max() or 1.0
        image = axis.imshow(field.T, colours, extent=extent, aspect="auto", vmin=0, vmax=top)
        axis.set(title=title, xlabel="time $t$")
        colour_bar(axis, image)
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
    figure = new_figure(9.6, 0.6 + 9.0 / columns * lines)
    axes = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True).ravel()
    for axis in axes[len(stages) :]:
        axis.set_axis_off()
    for index, (axis, points) in enumerate(zip(axes, stages, strict=False)):
        axis.scatter(points[:, 0], points[:, 1], s=1, alpha=0.4, linewidths=0)
        name = "source" if index == 0 else f"after {index} of {last} layers"
        axis.set(title=name, aspect="equal", xlim=(-reach, reach), ylim=(-reach, reach))
    figure.supxlabel("$x_1$")
    figure.supylabel("$x_2$")
    return figure


@style()
def propagated(law: AbstractPropagated, key: Any, points: int = 81) -> Figure:
    """Draw a propagated law: its density in one or two dimensions, draws in higher ones.

    **Arguments:**

    - `law`: the result of `diracflow.propagate`.
    - `key`: a random key.
    - `points`: number of points along each axis of a plane; a curve has four times this number.
    """
    require_kind("law", law, AbstractPropagated, "diracflow.propagate")
    key, points = checked_key(key), checked_count("points", points, least=2)
    draws = np.asarray(law.sample(key, (2000,)))
    low, high = np.quantile(draws, _SHOWN, axis=0)
    figure = new_figure(4.2, 3.4)
    axis = figure.subplots()
    axis.set(xlabel="$x_1$", ylabel="$x_2$")
    if draws.shape[1] == 1:
        x = np.linspace(low[0], high[0], 4 * points)
        axis.plot(x, np.asarray(law.prob(x[:, None])), color=LEARNED)
        axis.set(xlabel="$x$", ylabel="density")
    elif draws.shape[1] == 2:
        grid = plane(np.stack([low, high], axis=-1), points)
        values = np.asarray(law.prob(grid)).T
        shown = axis.pcolormesh(grid[:, 0, 0], grid[0, :, 1], values, shading="gouraud")
        figure.colorbar(shown, ax=axis, label="density")
    else:
        axis.plot(draws[:, 0], draws[:, 1], ".", color=LEARNED, markersize=2)
    axis.set_title(f"$t = {float(law.t):g}$", loc="left")
    return figure
