"""Points and observed paths in CSV and NPZ files."""

import zipfile
from pathlib import Path

import numpy as np
from jaxtyping import Float


def read_points(path: Path, dim: int) -> Float[np.ndarray, "n d"]:
    """Return one point per row of a CSV file, or the array `x` of an NPZ file."""
    table = _read_table(path, ("x",))
    points = np.atleast_2d(table[0] if isinstance(table, tuple) else table)
    if points.ndim != 2 or points.shape[1] != dim:
        raise ValueError(
            f"{path} must hold {dim} numbers per row, one point of this model; got shape "
            f"{points.shape}."
        )
    return points


def read_series(path: Path) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, "n k"]]:
    """Return times and values: the columns of a CSV file, or `times` and `states` of an NPZ file.

    An empty field or `nan` is a missing value.
    """
    table = _read_table(path, ("times", "states"))
    if isinstance(table, tuple):
        times, values = table
        if times.ndim != 1 or values.ndim not in (1, 2) or len(values) != len(times):
            raise ValueError(
                f"{path} must hold `times` of shape (n,) and `states` of shape (n, d); got "
                f"{times.shape} and {values.shape}."
            )
        return times, values.reshape(len(times), -1)
    if table.shape[1] < 2:
        raise ValueError(
            f"{path} must hold a time and at least one value per row; got shape {table.shape}."
        )
    return table[:, 0], table[:, 1:]


def read_states(path: Path, dim: int) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, "n d"]]:
    """Return times and full states of an observed path."""
    times, states = read_series(path)
    if states.shape[1] != dim:
        raise ValueError(
            f"{path} must hold a time and {dim} numbers per row for this model; got a time and "
            f"{states.shape[1]} numbers."
        )
    return times, states


def table_format(path: Path) -> str:
    """Return `.csv` or `.npz`, and raise an error for other file names."""
    suffix = path.suffix.lower()
    if suffix not in (".csv", ".npz"):
        raise ValueError(f"Tables are .csv or .npz files; got {path}.")
    return suffix


def _read_table(path: Path, names: tuple[str, ...]) -> np.ndarray | tuple[np.ndarray, ...]:
    """Return the rows of a CSV file, or the arrays called `names` of an NPZ file."""
    if table_format(path) == ".csv":
        return _read_csv(path)
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: np.asarray(file[name], dtype=float) for name in names if name in file}
            listed = ", ".join(file.files)
    except (ValueError, TypeError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is not an NPZ file of numbers: {error}") from None
    if len(arrays) < len(names):
        raise ValueError(f"{path} must hold arrays {', '.join(names)}; it holds {listed}.")
    return tuple(arrays.values())


def _read_csv(path: Path) -> Float[np.ndarray, "n k"]:
    """Return the rows of a CSV file, without a header; empty fields are NaN."""
    try:
        lines = [line for line in path.read_text().splitlines() if line.strip()]
        rows = lines[1:] if lines and _is_header(lines[0]) else lines
        if not rows:
            raise ValueError("it holds no rows")
        return np.loadtxt(rows, delimiter=",", comments=None, converters=_number, ndmin=2)
    except ValueError as error:
        raise ValueError(f"{path} must hold comma-separated numbers: {error}.") from None


def _number(field: str) -> float:
    return float(field) if field.strip() else float("nan")


def _is_header(line: str) -> bool:
    try:
        return not [_number(field) for field in line.split(",")]
    except ValueError:
        return True
