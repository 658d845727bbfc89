"""Parts that figures share: style, checks of arguments, heat maps, quantile bands.

The style is colour-blind safe and legible in print. Colours have the same meaning everywhere: blue
for learned densities, black for exact values, orange for the source alone or for observations. They
come from the palette of Okabe and Ito. Lines in one panel differ in more than their colour.
"""

from collections.abc import Sequence
from functools import partial
from types import UnionType
from typing import Any

import matplotlib
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.rcsetup import cycler
from matplotlib.ticker import MaxNLocator

from ..distribution.abstract_distribution import AbstractDistribution
from ..sde.argument_checks import checked_number
from ..transition.frozen import Frozen
from ..transition.transition_density import AbstractTransitionDensity, require_density

LEARNED, SOURCE, EXACT = "#0072b2", "#d55e00", "#000000"
# Colours of components and cases.
PALETTE = (LEARNED, SOURCE, "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
DENSITY_MAP, ERROR_MAP = "viridis", "magma"

_RC: Any = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.prop_cycle": cycler(color=PALETTE),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "image.origin": "lower",
    "savefig.dpi": 160,
    "savefig.bbox": "tight",
    "legend.frameon": False,
    "pdf.fonttype": 42,  # keeps text as text, as journals require
}


# Applies the style of diracflow's figures: a context, or the decorator `@style()`.
style = partial(matplotlib.rc_context, _RC)


class StyledFigure(Figure):
    """A figure that is saved in the style in which it was made."""

    @style()
    def savefig(self, fname: Any, *, transparent: bool | None = None, **kwargs: Any) -> None:
        """Write to `fname`; its ending, such as .pdf, .svg or .png, sets the format."""
        super().savefig(fname, transparent=transparent, **kwargs)


def panels(
    width: float, height: float, rows: int = 1, columns: int = 1, **sharing: Any
) -> tuple[Figure, Any]:
    """Return a figure of a size in inches, outside of pyplot's global state, and its panels."""
    figure = StyledFigure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **sharing)


def require_kind(name: str, value: object, kind: type | UnionType, maker: str) -> None:
    """Raise unless `value` is of the type that the function `maker` returns."""
    if not isinstance(value, kind):
        raise ValueError(f"`{name}` must come from `{maker}`; got {type(value).__name__}.")


def require_components(dim: int | None, **densities: Any) -> None:
    """Raise unless all are densities with `dim` components, or with more than two if `None`."""
    for name, density in densities.items():
        require_density(density, name)
        if density.dim != dim and not (dim is None and density.dim > 2):
            wanted = "more than two" if dim is None else str(dim)
            raise ValueError(
                f"This figure needs states with {wanted} components; `{name}` has {density.dim}."
            )


def checked_times(times: Any) -> list[float]:
    """Return one time or more."""
    listed = [checked_number("times", t) for t in np.atleast_1d(times)]
    if not listed:
        raise ValueError("`times` must contain at least one time.")
    return listed


# Sides whose lengths differ by at most this factor are drawn to one scale.
_SAME_SCALE = 3.0
# Number of draws that locate the mass, and the margin of a box relative to their range.
_DRAWS, _MARGIN = 2000, 0.05
# Default levels of quantile bands and of the median.
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)


def box_of(law: Frozen) -> Float[np.ndarray, "2 2"]:
    """Return lower and upper ends of the first two components: they cover the mass of the law.

    The box lies inside the domain. It is a square unless one side is much longer than the other.
    """
    draws = law.rvs(_DRAWS, random_state=0)[:, :2]
    return inside(law.density, box_around(draws))


def box_around(draws: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, "2 2"]:
    """Return lower and upper ends of a box that covers all draws."""
    low, high = draws.min(axis=0), draws.max(axis=0)
    half = (0.5 + _MARGIN) * (high - low)
    if half.max() <= _SAME_SCALE * half.min():
        half = np.full(2, half.max())
    middle = (high + low) / 2
    return np.stack([middle - half, middle + half], axis=-1)


def inside(
    law: AbstractTransitionDensity | AbstractDistribution, box: np.ndarray
) -> Float[np.ndarray, "2 2"]:
    """Return the part of a box in the domain of a law."""
    ends = np.array([part.ends for part in law.domain[:2]])
    return np.clip(box, ends[:, :1], ends[:, 1:])


def plane(box: np.ndarray, grid: int) -> Float[np.ndarray, "n n 2"]:
    """Return an even grid over a box, with the first component along the first axis."""
    axes = [np.linspace(low, high, grid) for low, high in box]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)


def heat(
    axis: Axes,
    title: str,
    values: np.ndarray,
    box: np.ndarray,
    colours: str,
    *,
    top: float | None = None,
    label: str = "",
    names: tuple[str, str] | None = None,
) -> None:
    """Draw a heat map of values on `plane(box)`, with its colour bar.

    **Arguments:**

    - `axis`, `title`: the panel and its title.
    - `values`, `box`: the values, and lower and upper ends of both axes.
    - `colours`, `top`, `label`: colour map, its largest value, and the label of the colour bar.
    - `names`: labels of the axes. By default they are states, drawn to one scale if possible.
    """
    width, height = box[:, 1] - box[:, 0]
    one_scale = names is None and max(width, height) <= _SAME_SCALE * min(width, height)
    image = axis.imshow(
        values.T,
        extent=(*box[0], *box[1]),
        cmap=colours,
        vmin=0,
        vmax=values.max() or 1.0 if top is None else top,
        aspect="equal" if one_scale else "auto",
    )
    across, upwards = names or ("$x_1$", "$x_2$")
    axis.set(title=title, xlabel=across, ylabel=upwards)
    axis.xaxis.set_major_locator(MaxNLocator(4))  # so that long numbers do not touch
    axis.yaxis.set_major_locator(MaxNLocator(5))
    bar = axis.figure.colorbar(image, ax=axis, fraction=0.046, pad=0.03, label=label)
    bar.ax.ticklabel_format(style="sci", scilimits=(-2, 2))
    bar.locator = MaxNLocator(5)
    bar.update_ticks()


def fan(axis: Axes, times: np.ndarray, levels: Sequence[float], quantiles: np.ndarray) -> None:
    """Draw bands between quantiles, the outermost first, and the median if it is one of them.

    Quantiles have one row for each level and one column for each time.
    """
    bands, ordered = dict(zip(levels, quantiles, strict=True)), sorted(levels)
    pairs = [(a, b) for a, b in zip(ordered, ordered[::-1], strict=True) if a < 0.5 < b]
    for alpha, (low, high) in zip(np.linspace(0.2, 0.4, len(pairs)), pairs, strict=True):
        look: Any = {"color": LEARNED, "alpha": float(alpha), "linewidth": 0}
        label = f"{100 * low:g} to {100 * high:g} %"
        axis.fill_between(times, bands[low], bands[high], label=label, **look)
    if 0.5 in bands:
        axis.plot(times, bands[0.5], color=LEARNED, linewidth=0.8, linestyle=":", label="median")


def query_title(x0: Float[np.ndarray, " d"], t: float | None = None) -> str:
    """Return a short title that names the start and, if given, the time."""
    shown = ", ".join(f"{value:.3g}" for value in np.atleast_1d(x0)[:3])
    more = ", …" if np.size(x0) > 3 else ""
    start = f"$x_0=({shown}{more})$" if np.size(x0) > 1 else f"$x_0={shown}$"
    return start if t is None else f"{start}, $t={t:.3g}$"
