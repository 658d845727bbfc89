"""`diracflow explore`: an interactive page about a model, in a browser."""

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
from .streams import emit, talk

# Seconds to wait at the end for requests that are still being computed.
_GRACE = 30.0


def explore_model(model: Path, port: int, browser: bool, sde: str | None) -> None:
    """Serve the page until Ctrl-C; the standard output holds its address only."""
    if not 0 <= port < 2**16:
        raise ValueError(f"`--port` must lie between 0 and {2**16 - 1}; got {port}.")
    density, exact = load_with_exact(model, sde)
    origin = density.sde.origin
    explorer = Explorer(density, exact, model.stem if origin is None else origin[0])
    # The page itself reports start points outside the trained region.
    warnings.simplefilter("ignore", OutsideWarning)
    with Server(explorer, port) as server:
        talk("Preparing the first figure.")
        explorer.warm_up("picture")
        emit(server.url)
        talk("Open this address in a browser on this machine. Ctrl-C stops the server.")
        threading.Thread(target=_warm_up, args=(explorer,), daemon=True).start()
        if browser and _has_display():
            webbrowser.open(server.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            talk("Stopped.")
    # Python must not exit while XLA compiles in another thread.
    explorer.rest(_GRACE)


def _warm_up(explorer: Explorer) -> None:
    """Compile the error bound and the bridge in the background."""
    for kind in ("certificate", "bridge"):
        try:
            explorer.warm_up(kind)
        except (ValueError, RuntimeError):  # the page shows the error when it is requested
            continue


def _has_display() -> bool:
    """Return `True` if there is a graphical display; else a text browser would start here."""
    graphical = sys.platform in ("win32", "darwin")
    return graphical or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
