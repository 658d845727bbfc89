"""Results: tables as CSV or NPZ files, or text and JSON on the standard output.

Commands check their output paths before they compute anything.
"""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from jaxtyping import Float

from .data_files import table_format
from .streams import emit, result_stream


def require_writable(path: Path | None, *, make_folders: bool = False) -> None:
    """Raise an error if the file `path` cannot be written.

    **Arguments:**

    - `path`: the output file; `None` is accepted.
    - `make_folders`: accept missing folders, because the caller will create them.
    """
    if path is None:
        return
    folder = path.parent
    while make_folders and not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.exists():
        raise ValueError(f"There is no folder {folder}; create it before writing {path.name}.")
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is not a folder; {path} cannot be written.")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file in it.")
    # Some files are replaced by new ones, which needs write access to the folder as well.
    for place in (folder, *([path] if path.exists() else [])):
        if not os.access(place, os.W_OK):
            raise PermissionError(f"{place} cannot be written to.")


def require_table(path: Path | None) -> None:
    """Raise an error if the table `path` cannot be written."""
    if path is not None:
        table_format(path)
        require_writable(path)


def require_figure(path: Path | None) -> None:
    """Raise an error if the figure `path` cannot be written, or has an unknown format."""
    if path is None:
        return
    require_writable(path)
    from matplotlib.backend_bases import FigureCanvasBase

    formats = FigureCanvasBase.get_supported_filetypes()
    if path.suffix.lower().removeprefix(".") not in formats:
        raise ValueError(f"Figures are {', '.join(sorted(formats))} files; got {path}.")


def write_table(
    path: Path | None, columns: Mapping[str, np.ndarray], arrays: Mapping[str, np.ndarray]
) -> None:
    """Write `columns` as CSV, to the standard output without a path, or `arrays` as NPZ."""
    if path is None:
        _write_csv(result_stream(), columns)
    elif table_format(path) == ".npz":
        np.savez(path, **arrays)  # type: ignore[arg-type]
    else:
        with path.open("w", newline="") as file:
            _write_csv(file, columns)


def state_columns(x: Float[np.ndarray, "n d"]) -> dict[str, np.ndarray]:
    """Return the components of states as columns x1, x2, ..."""
    return {f"x{index + 1}": column for index, column in enumerate(x.T)}


def emit_json(values: Mapping[str, Any]) -> None:
    """Print one line of JSON; numbers that are not finite become null."""
    emit(json.dumps(_plain(values), allow_nan=False))


def _write_csv(file: TextIO, columns: Mapping[str, np.ndarray]) -> None:
    file.write(",".join(columns) + "\n")
    for row in zip(*columns.values(), strict=True):
        file.write(",".join(f"{value:.10g}" for value in row) + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
