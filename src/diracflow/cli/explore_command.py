"""`diracflow explore`: look at a model in a browser."""

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

# Seconds that answers under way are waited for at the end.
_GRACE = 30.0


def explore_model(model: Path, port: int, browser: bool, sde: str | None) -> None:
    """Serve the page until Ctrl-C; its address alone goes to the standard output."""
    if not 0 <= port < 2**16:
        raise ValueError(f"`--port` must lie between 0 and {2**16 - 1}; got {port}.")
    explorer = _explorer(model, sde)
    # The page itself tells of starts outside.
    warnings.simplefilter("ignore", OutsideWarning)
    with Server(explorer, port) as server:
        talk("Preparing the first picture.")
        explorer.warm_up("picture")
        emit(server.url)
        talk("Open this address in a browser on this machine; Ctrl-C stops.")
        threading.Thread(target=_prepare_the_rest, args=(explorer,), daemon=True).start()
        if browser and _has_screen():
            webbrowser.open(server.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            talk("Stopped.")
    # Python must not end while code is being compiled.
    explorer.rest(_GRACE)


def _explorer(path: Path, sde: str | None) -> Explorer:
    density, exact = load_with_exact(path, sde)
    origin = density.sde.origin
    return Explorer(density, exact, path.stem if origin is None else origin[0])


def _prepare_the_rest(explorer: Explorer) -> None:
    for kind in ("certificate", "bridge"):
        try:
            explorer.warm_up(kind)
        except (ValueError, RuntimeError):  # said on the page to whoever asks
            continue


def _has_screen() -> bool:
    """Without one Python would start a browser in this terminal."""
    elsewhere = sys.platform in ("win32", "darwin")
    return elsewhere or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
