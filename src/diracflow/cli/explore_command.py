"""`diracflow explore`: a density on a local web page."""

import os
import sys
import threading
import warnings
import webbrowser
from pathlib import Path

from ..density.guard import OutsideWarning
from ..explore.explorer import Explorer
from ..explore.server import Server
from .inputs import load_with_exact
from .terminal import emit, talk

# Seconds to wait at the end for requests that are still being computed.
_GRACE = 30.0


def explore_model(model: Path, port: int, browser: bool, sde: str | None) -> None:
    """Serve the page until Ctrl-C; the standard output holds its address only."""
    density, exact = load_with_exact(model, sde)
    origin = density.sde.origin
    explorer = Explorer(density, exact, model.stem if origin is None else origin[0])
    # The page itself reports start points outside the trained region.
    warnings.simplefilter("ignore", OutsideWarning)
    with Server(explorer, port) as server:
        emit(server.url)
        talk("Open this address in a browser on this machine. Ctrl-C stops the server.")
        threading.Thread(target=_warm_up, args=(explorer,), daemon=True).start()
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


def _warm_up(explorer: Explorer) -> None:
    """Compile programs in the background, in the order in which the page needs them."""
    for kind in ("coarse", "picture", "certificate", "bridge"):
        try:
            explorer.warm_up(kind)
        except (ValueError, RuntimeError):  # the page shows the error when it is requested
            continue
