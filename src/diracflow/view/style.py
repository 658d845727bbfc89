"""Common style of all figures: colour-blind safe, legible in print.

Colours have the same meaning everywhere: blue for learned densities, black for exact values, orange
for the source alone or for observations. They come from the palette of Okabe and Ito. Lines in one
panel differ in more than their colour.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import matplotlib
from matplotlib.figure import Figure

LEARNED, SOURCE, EXACT = "#0072b2", "#d55e00", "#000000"
DENSITY_MAP, ERROR_MAP = "viridis", "magma"

_RC: Any = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "image.origin": "lower",
    "savefig.dpi": 160,
    "savefig.bbox": "tight",
    "legend.frameon": False,
    "pdf.fonttype": 42,  # keeps text as text, as journals require
}


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Apply the style of diracflow's figures, as a context or as the decorator `@style()`."""
    with matplotlib.rc_context(_RC):
        yield


def new_figure(width: float, height: float) -> Figure:
    """Return a figure of the given size in inches, outside of pyplot's global state."""
    return StyledFigure(figsize=(width, height), layout="constrained")


class StyledFigure(Figure):
    """A figure that is saved in the style in which it was made."""

    @style()
    def savefig(self, fname: Any, *, transparent: bool | None = None, **kwargs: Any) -> None:
        """Write to `fname`; its ending, such as .pdf, .svg or .png, sets the format."""
        super().savefig(fname, transparent=transparent, **kwargs)
