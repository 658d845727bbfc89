"""`diracflow explore`: a density on a local web page. It imports JAX when it runs."""

import os
import sys
import threading
import warnings
import webbrowser
from typing import Annotated

import typer

from .options import Equation, ModelFile
from .terminal import emit, talk

# Seconds to wait at the end for requests that are still being computed.
_GRACE = 30.0


def explore(
    model: ModelFile,
    port: Annotated[
        int, typer.Option(min=0, max=2**16 - 1, help="Port on this machine; 0 selects a free one.")
    ] = 8321,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")
    ] = True,
    sde: Equation = None,
) -> None:
    """Show the density in a browser, with sliders for time, start point and parameters."""
    talk("Preparing the page.")  # before seconds of imports
    from ..density.guard import OutsideWarning
    from ..explore.explorer import Explorer
    from ..explore.server import Server
    from .inputs import load_with_exact

    density, exact = load_with_exact(model, sde)
    origin = density.sde.origin
    explorer = Explorer(density, exact, model.stem if origin is None else origin[0])
    # The page itself reports start points outside the trained region.
    warnings.simplefilter("ignore", OutsideWarning)
    with Server(explorer, port) as server:
        emit(server.url)  # the only line on the standard output
        talk("Open this address in a browser on this machine. Ctrl-C stops the server.")
        threading.Thread(target=explorer.warm_up, daemon=True).start()
        displays = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
        # Without a graphical display a text browser would start in the terminal.
        if browser and (displays or sys.platform in ("win32", "darwin")):
            webbrowser.open(server.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            talk("Stopped.")
    # Python must not exit while XLA compiles in another thread.
    explorer.rest(_GRACE)
