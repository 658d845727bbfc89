"""Pieces that figures share: which part of space is shown, heat maps, colour bars."""

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator

from ..transition.frozen import Frozen
from ..transition.transition_density import AbstractTransitionDensity

# Sides that differ by no more than this factor are drawn to one scale.
_SAME_SCALE = 3.0
# Draws that tell where the mass is, and how far beyond them a box reaches.
_DRAWS, _BEYOND = 2000, 0.05


def box_of(law: Frozen) -> Float[np.ndarray, "2 2"]:
    """Lower and upper ends of the first two components, about the mass and inside the domain.

    A square, unless one component spreads so much further that the other would not be seen.
    """
    draws = law.rvs(_DRAWS, random_state=0)[:, :2]
    return _inside(law.density, box_around(draws))


def box_around(draws: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, "2 2"]:
    """The same for a cloud of points."""
    low, high = draws.min(axis=0), draws.max(axis=0)
    half = (0.5 + _BEYOND) * (high - low)
    if half.max() <= _SAME_SCALE * half.min():
        half = np.full(2, half.max())
    middle = (high + low) / 2
    return np.stack([middle - half, middle + half], axis=-1)


def is_square(box: np.ndarray) -> bool:
    """Whether both components are drawn to one scale."""
    width, height = box[:, 1] - box[:, 0]
    return bool(max(width, height) <= _SAME_SCALE * min(width, height))


def plane(box: np.ndarray, grid: int) -> Float[np.ndarray, "n n 2"]:
    """Even points of a box, the first component along the first axis."""
    axes = [np.linspace(low, high, grid) for low, high in box]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)


def heat(
    axis: Axes,
    title: str,
    values: np.ndarray,
    box: np.ndarray,
    colours: str,
    top: float | None = None,
    label: str = "",
) -> None:
    """A heat map of values on `plane(box)`, with its colour bar."""
    image = axis.imshow(
        values.T,
        extent=(*box[0], *box[1]),
        origin="lower",
        cmap=colours,
        vmin=0,
        vmax=values.max() or 1.0 if top is None else top,
        aspect="equal" if is_square(box) else "auto",
    )
    axis.set(title=title, xlabel="$x_1$", ylabel="$x_2$")
    axis.xaxis.set_major_locator(MaxNLocator(4))  # long numbers would touch
    axis.yaxis.set_major_locator(MaxNLocator(5))
    colour_bar(axis, image, label)


def colour_bar(axis: Axes, image: AxesImage, label: str = "") -> None:
    """The scale of a heat map, with few ticks."""
    bar = axis.figure.colorbar(image, ax=axis, fraction=0.046, pad=0.03, label=label)
    bar.ax.ticklabel_format(style="sci", scilimits=(-2, 2))
    bar.locator = MaxNLocator(5)
    bar.update_ticks()


def point_text(x0: Float[np.ndarray, " d"]) -> str:
    """A start, short enough for a title."""
    shown = ", ".join(f"{value:.3g}" for value in np.atleast_1d(x0)[:3])
    more = ", …" if np.size(x0) > 3 else ""
    return f"$x_0=({shown}{more})$" if np.size(x0) > 1 else f"$x_0={shown}$"


def _inside(density: AbstractTransitionDensity, box: np.ndarray) -> np.ndarray:
    ends = np.array([part.ends for part in density.domain[:2]])
    return np.stack([np.maximum(box[:, 0], ends[:, 0]), np.minimum(box[:, 1], ends[:, 1])], axis=-1)
