"""Tables in CSV and NPZ files: points, observed paths and results.

Commands check their output paths before they compute anything.
"""

import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Float

from .terminal import result_stream


def read_points(path: Path, dim: int) -> Float[np.ndarray, "n d"]:
    """Return one point per row of a CSV file, or the array `x` of an NPZ file."""
    points = np.atleast_2d(_read_table(path, ("x",))[0])
    if points.ndim != 2 or points.shape[1] != dim:
        raise ValueError(
            f"{path} must hold {dim} numbers per row, one point of this model; got shape "
            f"{points.shape}."
        )
    return points


def read_series(
    path: Path, dim: int | None = None, unit: str | None = None
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, "n k"]]:
    """Return times and values: the columns of a CSV file, or `times` and `states` of an NPZ file.

    An empty field or `nan` is a missing value. Parquet files, and CSV files with dates, need
    pandas; times are the index of the frame, or its first column. `dim` is the required number of
    values at each time, and `unit` that of the SDE's time, if times are dates.
    """
    if unit is not None or path.suffix.lower() == ".parquet":
        times, values = _read_frame(path, unit)
    else:
        times, values = _read_table(path, ("times", "states"))
    if times.ndim != 1 or values.ndim not in (1, 2) or len(values) != len(times) or not values.size:
        raise ValueError(
            f"{path} must hold a time and at least one value per row, or `times` of shape (n,) and "
            f"`states` of shape (n, d); got {times.shape} and {values.shape}."
        )
    values = values.reshape(len(times), -1)
    if dim is not None and values.shape[1] != dim:
        raise ValueError(
            f"{path} must hold a time and {dim} numbers per row for this model; got a time and "
            f"{values.shape[1]} numbers."
        )
    return times, values


def _read_table(path: Path, names: tuple[str, ...]) -> tuple[np.ndarray, ...]:
    """Return the arrays called `names` of an NPZ file, or the columns of a CSV file as such."""
    if table_format(path) == ".csv":
        rows = _read_csv(path)
        return (rows,) if len(names) == 1 else (rows[:, 0], rows[:, 1:])
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: np.asarray(file[name], dtype=float) for name in names if name in file}
            listed = ", ".join(file.files)
    except (ValueError, TypeError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is not an NPZ file of numbers: {error}") from None
    if len(arrays) < len(names):
        raise ValueError(f"{path} must hold arrays {', '.join(names)}; it holds {listed}.")
    return tuple(arrays.values())


def _read_frame(path: Path, unit: str | None) -> tuple[np.ndarray, ...]:
    """Return times and values of a frame in a Parquet file, or in a CSV file with dates."""
    from ..uses.extras import extra
    from ..uses.observed import observed

    pandas = extra("pandas", "series")
    try:
        if path.suffix.lower() == ".parquet":
            frame = pandas.read_parquet(path)
            plain = isinstance(frame.index, pandas.RangeIndex)
            frame = frame.set_index(frame.columns[0]) if plain else frame
        else:
            frame = pandas.read_csv(path, index_col=0, parse_dates=True)
    except (pandas.errors.ParserError, pandas.errors.EmptyDataError, IndexError) as error:
        raise ValueError(f"{path} must hold times and values: {error}.") from None
    return observed(frame, unit)


def _read_csv(path: Path) -> Float[np.ndarray, "n k"]:
    """Return the rows of a CSV file, without a header; empty fields are NaN."""

    def number(field: str) -> float:
        return float(field) if field.strip() else float("nan")

    try:
        rows = [line for line in path.read_text().splitlines() if line.strip()]
        try:
            [*map(number, ",".join(rows[:1]).split(","))]
        except ValueError:  # a header
            rows = rows[1:]
        if not rows:
            raise ValueError("it holds no rows")
        return np.loadtxt(rows, delimiter=",", comments=None, converters=number, ndmin=2)
    except ValueError as error:
        raise ValueError(f"{path} must hold comma-separated numbers: {error}.") from None


def table_format(path: Path) -> str:
    """Return `.csv` or `.npz`, and raise an error for other file names."""
    suffix = path.suffix.lower()
    if suffix not in (".csv", ".npz"):
        raise ValueError(f"Tables are .csv or .npz files; got {path}.")
    return suffix


def require_writable(path: Path, *, make_folders: bool = False) -> None:
    """Raise an error if the file `path` cannot be written; the caller may `make_folders` first."""
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


def require_netcdf(path: Path, figure: Path | None) -> None:
    """Raise an error if a result cannot be written to a file named .nc, or drawn in a figure."""
    if path.suffix != ".nc":
        raise ValueError(f"Results are written as NetCDF, to a file named .nc; got {path}.")
    require_writable(path)
    require_figure(figure)


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
    if path is not None and table_format(path) == ".npz":
        np.savez(path, **arrays)  # type: ignore[arg-type]
        return
    rows, header = np.column_stack(list(columns.values())), ",".join(columns)
    target = result_stream() if path is None else path
    np.savetxt(target, rows, "%.10g", delimiter=",", header=header, comments="")


def state_columns(x: Float[np.ndarray, "n d"]) -> dict[str, np.ndarray]:
    """Return the components of states as columns x1, x2, ..."""
    return {f"x{index + 1}": column for index, column in enumerate(x.T)}
