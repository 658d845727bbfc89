"""Methods `plot` of laws and results.

Figures are made by the package `view`, which comes after all others and imports matplotlib. It is
therefore imported by name, when a figure is asked for.
"""

import importlib
from typing import Any


def plotted(thing: Any, ax: Any = None, drawing: str = "one_panel") -> Any:
    """Draw a law, a result or the history of a training by a function of `view.one_panel`."""
    return getattr(importlib.import_module("diracflow.view.one_panel"), drawing)(thing, ax)


class Drawn:
    """A law or a result that can be drawn."""

    def plot(self, ax: Any = None) -> Any:
        """Draw it in one panel, and return the `Axes`.

        **Arguments:**

        - `ax`: a matplotlib `Axes`; by default that of a new figure.
        """
        return plotted(self, ax)
