"""Points and results as CSV and NPZ files, or as JSON on the standard output."""

import json
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from jaxtyping import Float

from .output_paths import require_place
from .streams import results


def read_table(path: Path, names: tuple[str, ...]) -> np.ndarray | tuple[np.ndarray, ...]:
    """The rows of a CSV file, empty fields as NaN, or the arrays of these names in an NPZ."""
    if _kind(path) == ".csv":
        return _read_csv(path)
    try:
        with np.load(path, allow_pickle=False) as file:
            held = {name: np.asarray(file[name], dtype=float) for name in names if name in file}
            listed = ", ".join(file.files)
    except (ValueError, TypeError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is not an NPZ file of numbers: {error}") from None
    if len(held) < len(names):
        raise ValueError(f"{path} must hold arrays {', '.join(names)}; it holds {listed}.")
    return tuple(held.values())


def read_points(path: Path, dim: int) -> Float[np.ndarray, "n d"]:
    """One point a row of a CSV file, with or without names above, or the array `x` of an NPZ."""
    table = read_table(path, ("x",))
    points = np.atleast_2d(table[0] if isinstance(table, tuple) else table)
    if points.ndim != 2 or points.shape[1] != dim:
        raise ValueError(
            f"{path} must hold one point of {dim} numbers a row for this model; got shape "
            f"{points.shape}."
        )
    return points


def write_table(path: Path | None, columns: Mapping[str, np.ndarray], arrays: Mapping) -> None:
    """`columns` as CSV, on the standard output without a path; `arrays` if an NPZ is asked for."""
    if path is None:
        return _write_csv(results(), columns)
    if _kind(path) == ".npz":
        return np.savez(path, **arrays)
    with path.open("w", newline="") as file:
        _write_csv(file, columns)


def state_columns(x: Float[np.ndarray, "n d"]) -> dict[str, np.ndarray]:
    """The components of states, named x1, x2, ..."""
    return {f"x{index + 1}": column for index, column in enumerate(x.T)}


def as_json(values: Mapping[str, Any]) -> str:
    """One line of JSON; what is not finite, which JSON does not know, becomes null."""
    return json.dumps({name: _plain(value) for name, value in values.items()}, allow_nan=False)


def require_kind(path: Path | None) -> None:
    """Raise before anything is computed for a file that could not be written."""
    if path is not None:
        _kind(path)
        require_place(path)


def _kind(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in (".csv", ".npz"):
        raise ValueError(f"Tables are .csv or .npz files; got {path}.")
    return suffix


def _read_csv(path: Path) -> np.ndarray:
    try:
        lines = [line for line in path.read_text().splitlines() if line.strip()]
        named = bool(lines) and not _is_numbers(lines[0])
        rows = [[_number(field) for field in line.split(",")] for line in lines[named:]]
    except ValueError as error:
        raise ValueError(f"{path} must hold numbers divided by commas: {error}.") from None
    if not rows:
        raise ValueError(f"{path} must hold numbers divided by commas; it holds no rows.")
    lengths = [len(row) for row in rows]
    if min(lengths) < max(lengths):
        odd = next(i for i, length in enumerate(lengths) if length != lengths[0])
        raise ValueError(
            f"{path} must have as many numbers in each row: the first has {lengths[0]}, row "
            f"{odd + 1} has {lengths[odd]}."
        )
    return np.array(rows, dtype=float)


def _number(field: str) -> float:
    return float(field) if field.strip() else float("nan")


def _is_numbers(line: str) -> bool:
    try:
        return bool([float(field) for field in line.split(",")])
    except ValueError:
        return False


def _write_csv(file: TextIO, columns: Mapping[str, np.ndarray]) -> None:
    file.write(",".join(columns) + "\n")
    for row in zip(*columns.values(), strict=True):
        file.write(",".join(f"{value:.10g}" for value in row) + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
