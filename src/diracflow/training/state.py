"""The state of a training between two accepted steps."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from .history import Record

Rows = tuple[Float[np.ndarray, " m"], ...]

_PATH = ("clocks", "thetas", "first", "last")
_FIELDS = tuple(field.name for field in dataclasses.fields(Record))
# Prefix of the names of arrays with carried values.
_CARRIED = "carried."


@dataclasses.dataclass(frozen=True)
class State:
    """The path of a loop, its history, and the values that the next step needs."""

    clocks: tuple[float, ...]
    thetas: Rows
    first: Rows
    last: Rows
    history: tuple[Record, ...]
    seconds: float  # of wall time, so far
    carried: Mapping[str, Any]  # numbers and arrays, by the names that loops give them

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the state as arrays, bit for bit."""
        width = len(self.thetas[0])
        history = [dataclasses.astuple(record) for record in self.history]
        return {
            "clocks": np.array(self.clocks, dtype=np.float64),
            "thetas": np.stack(self.thetas),
            "first": np.reshape(self.first, (-1, width)),
            "last": np.reshape(self.last, (-1, width)),
            "history": np.reshape(np.array(history, dtype=np.float64), (-1, len(_FIELDS))),
            "seconds": np.array(self.seconds),
            **{_CARRIED + name: np.asarray(value) for name, value in self.carried.items()},
        }


def state_from(arrays: Mapping[str, np.ndarray]) -> State:
    """Return the state with these arrays; raise `ValueError` if they are inconsistent."""
    missing = [name for name in (*_PATH, "history", "seconds") if name not in arrays]
    if missing:
        raise ValueError(f"the state of a training lacks {', '.join(missing)}")
    clocks, thetas, first, last = (arrays[name] for name in _PATH)
    steps, width = len(arrays["history"]), thetas.shape[-1]
    shapes = [clocks.shape, thetas.shape, first.shape, last.shape, arrays["history"].shape]
    expected = [(steps + 1,), (steps + 1, width), (steps, width), (steps, width)]
    if shapes != [*expected, (steps, len(_FIELDS))]:
        raise ValueError(f"the tables of a training do not fit together: {shapes}")
    carried = {n: a for n, a in arrays.items() if n.startswith(_CARRIED)}
    return State(
        clocks=tuple(clocks.tolist()),
        thetas=tuple(map(np.array, thetas)),
        first=tuple(map(np.array, first)),
        last=tuple(map(np.array, last)),
        history=tuple(map(_record, arrays["history"])),
        seconds=arrays["seconds"].item(),
        # Scalars become Python numbers again: JAX distinguishes them from arrays.
        carried={n.removeprefix(_CARRIED): a if a.ndim else a.item() for n, a in carried.items()},
    )


def _record(row: Float[np.ndarray, " fields"]) -> Record:
    fields = dict(zip(_FIELDS, row.tolist(), strict=True))
    return Record(**fields | {"rejected": int(fields["rejected"])})
