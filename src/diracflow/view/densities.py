"""Figures of densities in the plane: exact, learned, and their difference."""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Array, Float
from matplotlib.figure import Figure

from ..density.learned import LearnedDensity
from ..sde.argument_checks import checked_number, checked_point
from ..transition.transition_density import AbstractTransitionDensity
from .axes import box_of, colour_bar, heat, plane, point_text
from .figure_checks import checked_start, require_components, require_kind
from .style import DENSITY_MAP, ERROR_MAP, new_figure, style

Plane = Callable[[np.ndarray], Float[Array, "n n"]]
_GRID = 161


def joint(
    density: AbstractTransitionDensity,
    exact: AbstractTransitionDensity,
    t: float,
    x0s: Float[np.ndarray, "rows 2"],
    **given: Any,
) -> Figure:
    """Exact density, learned density and absolute error at time `t`, a row for each start.

    `given` holds the keywords `params` and `start_time` of a query.
    """
    require_components(2, density=density, exact=exact)
    x0s = np.atleast_2d(checked_point("x0s", x0s, 2))
    if x0s.ndim != 2 or not len(x0s):
        raise ValueError(f"`x0s` must be a list of one start or more; got shape {x0s.shape}.")
    rows: list[tuple[str, np.ndarray, Plane, Plane]] = []
    for x0 in np.asarray(x0s, dtype=float):
        true, found = (law.at(t, x0, **given) for law in (exact, density))
        box = box_of(true)
        label = f"{point_text(x0)}, $t={t:.3g}$"
        rows.append((label, box, true.pdf, found.pdf))
    return comparison(rows)


def section(
    density: AbstractTransitionDensity,
    exact: AbstractTransitionDensity,
    t: float,
    x0: Float[np.ndarray, " d"],
    **given: Any,
) -> Figure:
    """The $(x_1, x_2)$ section, other components zero, of densities in higher dimensions."""
    require_components(None, density=density, exact=exact)
    x0 = checked_start(x0, exact.dim)
    box = box_of(exact.at(t, x0, **given))
    rest = len(x0) - 2

    def cut(law: AbstractTransitionDensity) -> Plane:
        def values(x: Float[np.ndarray, "n n 2"]) -> Float[Array, "n n"]:
            padded = np.concatenate([x, np.zeros((*x.shape[:-1], rest))], axis=-1)
            return law.prob(padded, t, x0, **given)

        return values

    zeros = f"$x_3=\\dots=x_{{{len(x0)}}}=0$"
    return comparison([(f"{zeros}, $t={t:.3g}$", box, cut(exact), cut(density))])


def comparison(rows: list[tuple[str, np.ndarray, Plane, Plane]], grid: int = _GRID) -> Figure:
    """Rows of exact, learned, absolute error; each row has a label, a box and two functions."""
    with style():
        figure = new_figure(9.6, 2.9 * len(rows))
        axes = figure.subplots(len(rows), 3, squeeze=False)
        for line, (label, box, exact, learned) in zip(axes, rows, strict=True):
            x = plane(box, grid)
            truth, found = np.asarray(exact(x)), np.asarray(learned(x))
            heat(line[0], f"{label}\nexact density", truth, box, DENSITY_MAP, truth.max())
            heat(line[1], "learned density", found, box, DENSITY_MAP, truth.max())
            heat(line[2], "absolute error", np.abs(found - truth), box, ERROR_MAP)
        return figure


def conditional(
    density: AbstractTransitionDensity,
    exact: AbstractTransitionDensity,
    x0: Float[np.ndarray, " 2"],
    horizon: float,
) -> Figure:
    """Density of $x_1$ given $x_2 = 0$ over time, each instant scaled to a maximum of one."""
    require_components(2, density=density, exact=exact)
    x0, horizon = checked_start(x0, 2), checked_number("horizon", horizon)
    times = np.linspace(horizon / 100, horizon, 100)
    reach = np.abs(box_of(exact.at(horizon, x0))[0]).max()
    x1 = np.linspace(-reach, reach, _GRID)
    x = np.stack([x1, np.zeros_like(x1)], axis=-1)
    with style():
        figure = new_figure(9.0, 3.2)
        axes = figure.subplots(1, 3)
        fields = [_scaled(law.prob(x, times[:, None], x0)) for law in (exact, density)]
        panels = [*fields, np.abs(fields[1] - fields[0])]
        titles = [f"exact, {point_text(x0)}", "learned", "absolute difference"]
        for axis, title, field in zip(axes, titles, panels, strict=True):
            difference = field is panels[2]
            image = axis.imshow(
                field.T,
                extent=(times[0], times[-1], -reach, reach),
                aspect="auto",
                origin="lower",
                cmap=ERROR_MAP if difference else DENSITY_MAP,
                vmin=0,
                vmax=field.max() or 1.0,
            )
            axis.set(title=title, xlabel="time $t$")
            colour_bar(axis, image)
        axes[0].set_ylabel("$x_1$ given $x_2=0$, each instant scaled to one")
        return figure


def moulding(
    density: LearnedDensity,
    t: float,
    x0: Float[np.ndarray, " 2"],
    noise: Float[np.ndarray, "n d"],
) -> Figure:
    """Samples of the source on their way through the layers of the flow."""
    require_kind("density", density, LearnedDensity, "diracflow.learn")
    if density.dim < 2:
        raise ValueError("This figure is of two components; the density has one.")
    stages = np.asarray(density.stages(noise, t, x0))
    lines = -(-len(stages) // 6)  # of at most six panels, as equal as can be
    columns = -(-len(stages) // lines)
    reach = np.abs(stages[..., :2]).max()
    with style():
        figure = new_figure(9.6, 0.6 + 9.0 / columns * lines)
        axes = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True).ravel()
        for index, axis in enumerate(axes):
            if index >= len(stages):
                axis.set_axis_off()
                continue
            points, last = stages[index], len(stages) - 1
            axis.scatter(points[:, 0], points[:, 1], s=1, alpha=0.4, linewidths=0)
            name = "source" if index == 0 else f"after {index} of {last} layers"
            axis.set(title=name, aspect="equal", xlim=(-reach, reach), ylim=(-reach, reach))
        figure.supxlabel("$x_1$")
        figure.supylabel("$x_2$")
        return figure


def _scaled(values: Array) -> np.ndarray:
    table = np.asarray(values)
    return table / table.max(axis=1, keepdims=True)
