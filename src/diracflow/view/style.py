"""One look for all figures: colour-blind safe, legible when printed.

Colours mean the same everywhere: blue what is learned, black what is known exactly, orange the
source alone, or observations. They are taken from Okabe and Ito's palette, and lines that share a
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
    "pdf.fonttype": 42,  # text stays text, as journals ask
}


@contextlib.contextmanager
def style() -> Iterator[None]:
    """The look of diracflow's figures."""
    with matplotlib.rc_context(_RC):
        yield


def new_figure(width: float, height: float) -> Figure:
    """A figure of the given size in inches, outside of pyplot's global state."""
    return StyledFigure(figsize=(width, height), layout="constrained")


class StyledFigure(Figure):
    """A figure that is written in the look it was made in; the format follows the file's name."""

    def savefig(self, fname: Any, *, transparent: bool | None = None, **kwargs: Any) -> None:
        """Write to `fname`, such as a .pdf, .svg or .png."""
        with style():
            super().savefig(fname, transparent=transparent, **kwargs)
