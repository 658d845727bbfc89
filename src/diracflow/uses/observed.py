"""Times and states from pandas and xarray, in a stated unit of time."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..sde.argument_checks import checked_number

# Seconds in each unit of time.
_SECONDS = {
    **{"second": 1.0, "s": 1.0, "minute": 60.0, "min": 60.0, "hour": 3600.0, "h": 3600.0},
    **{"day": 86_400.0, "D": 86_400.0, "week": 604_800.0, "W": 604_800.0},
    **{"year": 365.25 * 86_400.0, "Y": 365.25 * 86_400.0},
}


class Observed(NamedTuple):
    """Times and states, in the order in which other functions take them."""

    times: Float[np.ndarray, " n"]
    states: Float[np.ndarray, "*batch n d"]


def observed(data: Any, unit: str | None = None, *, origin: Any = None) -> Observed:
    """Return the times and the states of a pandas or xarray object.

    **Arguments:**

    - `data`: a `Series` or `DataFrame`, one row for each time; or a `DataArray` with the dimension
        `time`, and the components along its last other dimension, if there is any.
    - `unit`: the unit of the SDE's time, if the index holds dates: `"second"`, `"minute"`,
        `"hour"`, `"day"`, `"week"` or `"year"` (365.25 days).
    - `origin`: the date at which time is zero; by default the first one. It matters only if
        coefficients depend on time.

    **Returns:** `times` and `states`, which other functions take in this order:
    `diracflow.log_likelihood(density, *diracflow.observed(frame, "day"))`.
    """
    found = _of_frame(data)
    if found is None:
        raise ValueError(
            "`data` must be a pandas Series or DataFrame, or an xarray DataArray; got "
            f"{type(data).__name__}. Arrays are passed as they are: `times, states`."
        )
    index, states = found
    times = _numbers(index, unit, origin)
    late = np.diff(times) <= 0
    if np.any(late):
        raise ValueError(
            f"Times must increase; entry {int(np.argmax(late)) + 1} of the index does not. Use "
            "`data.sort_index()` and remove duplicates."
        )
    return Observed(times, states)


def in_unit(times: Any, states: Any, unit: str | None, origin: Any = None) -> tuple[Any, Any]:
    """Return times and states as arrays: dates in the stated unit, frames as their values.

    Anything else is returned as it is.
    """
    if hasattr(times, "columns"):
        raise ValueError(
            "`times` must be the index of a frame, and `states` the frame itself; got a "
            f"{type(times).__name__} as `times`. Pass `frame.index, frame`."
        )
    index, found = _labels(times), _of_frame(states)
    if isinstance(index, np.ndarray):
        times = _numbers(index, unit, origin) if index.dtype.kind in "mM" else index
    return times, states if found is None else found[1]


def _labels(index: Any) -> Any:
    """Return the values of an index, which has a name; dates of a time zone are those in UTC."""
    labels = index.tz_convert(None) if getattr(index, "tz", None) is not None else index
    return getattr(labels, "values", None) if hasattr(labels, "name") else labels


def _of_frame(data: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Return index and states of a pandas or xarray object, and `None` for anything else."""
    if hasattr(data, "dims"):
        index, states = _of_xarray(data)
    elif hasattr(data, "index") and hasattr(data, "to_numpy"):
        index, states = _labels(data.index), data.to_numpy(dtype=float)
    else:
        return None
    return index, states[:, None] if states.ndim == 1 else states


def _of_xarray(data: Any) -> tuple[np.ndarray, np.ndarray]:
    if "time" not in data.dims:
        raise ValueError(
            f"`data` must have the dimension `time`; it has {', '.join(map(str, data.dims))}. Use "
            "`data.rename({...: 'time'})`."
        )
    others = [name for name in data.dims if name != "time"]
    array = data.transpose(*others[:-1], "time", *others[-1:])
    return np.asarray(data["time"].values), np.asarray(array.values, dtype=float)


def _numbers(index: np.ndarray, unit: str | None, origin: Any) -> Float[np.ndarray, " n"]:
    if index.dtype.kind in "fiu":
        shift = 0.0 if origin is None else checked_number("origin", origin)
        return index.astype(float) - shift
    if index.dtype.kind not in "mM" or np.any(np.isnat(index)):
        raise ValueError(f"The index must hold dates or numbers; got dtype {index.dtype}, or NaT.")
    if unit not in _SECONDS:
        raise ValueError(
            "`times` must be numbers; for dates, the unit of the SDE's time must be stated: "
            f'`unit="day"`, "second", "minute", "hour", "week" or "year"; got {unit!r}. '
            "`diracflow.observed(frame, unit)` returns times in a unit as well."
        )
    zero = index[0] if origin is None else np.asarray(origin, dtype=index.dtype)
    return (index - zero) / np.timedelta64(1, "ns") * 1e-9 / _SECONDS[unit]
