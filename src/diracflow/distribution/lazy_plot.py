"""Methods `plot` of laws and results.

Figures are made by the package `view`, which comes after all others and imports matplotlib. It is
therefore imported by name, when a figure is asked for.
"""

import importlib
from typing import Any


def plotted(thing: Any, ax: Any = None, drawing: str = "one_panel") -> Any:
    """Draw a law, a result or the history of a training in one panel, and return its `Axes`.

    **Arguments:**

    - `thing`: what to draw.
    - `ax`: a matplotlib `Axes`; by default that of a new figure.
    - `drawing`: the name of the function in `view.one_panel`.
    """
    return getattr(importlib.import_module("diracflow.view.one_panel"), drawing)(thing, ax)
