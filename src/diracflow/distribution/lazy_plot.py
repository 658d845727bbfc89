"""Methods `plot` of laws and results.

Figures are made by the package `view`, which comes after all others and needs the extra `view`. It
is therefore imported by name, when a figure is asked for.
"""

import importlib
from typing import Any


def plotted(thing: Any, ax: Any = None) -> Any:
    """Draw a law, paths, a bridge or a filter in one panel, and return its `Axes`.

    **Arguments:**

    - `thing`: what to draw.
    - `ax`: a matplotlib `Axes`; by default that of a new figure.
    """
    try:
        module = importlib.import_module("diracflow.view.one_panel")
    except ImportError as error:
        raise ImportError("`plot` needs matplotlib: `pip install 'diracflow[view]'`.") from error
    return module.one_panel(thing, ax)
