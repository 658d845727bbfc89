"""One look for all figures: colour-blind safe, legible when printed."""

import contextlib
from collections.abc import Iterator
from typing import Any

import matplotlib
from matplotlib.figure import Figure

LEARNED, SOURCE = "#0072b2", "#d55e00"
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
}


@contextlib.contextmanager
def style() -> Iterator[None]:
    """The look of diracflow's figures."""
    with matplotlib.rc_context(_RC):
        yield


def new_figure(width: float, height: float) -> Figure:
    """A figure of the given size in inches, outside of pyplot's global state."""
    return Figure(figsize=(width, height), layout="constrained")
