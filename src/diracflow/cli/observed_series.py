"""Observed paths in files: times and values, one observation a row."""

from pathlib import Path

import numpy as np

from .tables import read_table


def read_series(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Times and values: first and further columns of a CSV file, or `times`, `states` of an NPZ.

    An empty field or `nan` is a missing value.
    """
    table = read_table(path, ("times", "states"))
    if isinstance(table, tuple):
        times, values = table
        if times.ndim != 1 or values.ndim not in (1, 2) or len(values) != len(times):
            raise ValueError(
                f"{path} must hold `times` of shape (n,) and `states` of shape (n, d); got "
                f"{times.shape} and {values.shape}."
            )
        return times, values.reshape(len(times), -1)
    if table.ndim != 2 or table.shape[1] < 2:
        raise ValueError(
            f"{path} must hold the time and at least one value in each row; got shape "
            f"{table.shape}."
        )
    return table[:, 0], table[:, 1:]


def read_states(path: Path, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Times and whole states of a path."""
    times, states = read_series(path)
    if states.shape[1] != dim:
        raise ValueError(
            f"{path} must hold a time and {dim} numbers a row for this model; got "
            f"{states.shape[1]} numbers beside the time."
        )
    return times, states
