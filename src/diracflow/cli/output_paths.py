"""Whether results can be written where the user wants them, asked before anything is computed."""

import os
from pathlib import Path


def require_place(path: Path | None) -> None:
    """Raise if a file could not be written; its folder must be there."""
    if path is None:
        return
    if not path.parent.is_dir():
        raise ValueError(f"There is no folder {path.parent} to write {path.name} into.")
    _require_writable(path)


def require_target(path: Path) -> None:
    """Raise if a file could not be written; folders that are missing will be made."""
    above = path.parent
    while not above.exists() and above != above.parent:
        above = above.parent
    if not above.is_dir():
        raise NotADirectoryError(f"{above} is not a folder; {path} cannot be written.")
    _require_writable(path, above)


def require_figure(path: Path | None) -> None:
    """Raise if a figure could not be written, or not in this format."""
    if path is None:
        return
    require_place(path)
    from matplotlib.backend_bases import FigureCanvasBase

    known = FigureCanvasBase.get_supported_filetypes()
    if path.suffix.lower().removeprefix(".") not in known:
        raise ValueError(f"Figures are {', '.join(sorted(known))} files; got {path}.")


def _require_writable(path: Path, folder: Path | None = None) -> None:
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file in it.")
    folder = path.parent if folder is None else folder
    # Files are replaced by new ones: the folder must allow it, whatever the file does.
    for place in (folder, *([path] if path.exists() else [])):
        if not os.access(place, os.W_OK):
            raise PermissionError(f"{place} cannot be written to.")
