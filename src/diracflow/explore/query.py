"""Parser of the query string of a request.

`t=0.5&x0=0.1,-0.2&p.rate=1.5&s=0&pair=1,2&kind=section&x1=1,1&box=-2,2,-3,3`: time, start,
parameters, start time, components shown, section or marginal, end of the bridges, axes.
"""

from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import numpy as np

from ..density.learned import LearnedDensity

KINDS = ("section", "marginal")
_PARAMETER = "p."


class Query(NamedTuple):
    """A parsed query. The density checks its values."""

    t: float
    x0: np.ndarray
    conditioning: dict[str, Any]  # keyword arguments `params` and `start_time` of a query
    pair: tuple[int, ...]  # indices of the one or two components shown
    kind: str
    x1: np.ndarray | None
    box: np.ndarray | None  # lower and upper end of each axis

    @property
    def start(self) -> tuple:
        """Everything a certificate depends on except the time, as a dictionary key."""
        params, start_time = self.conditioning["params"], self.conditioning["start_time"]
        return (*self.x0.tolist(), *params.values(), start_time)


def read_query(text: str, density: LearnedDensity) -> Query:
    """Parse `text`; raise a `ValueError` that explains what is wrong with it."""
    fields = _fields(text)
    names = {f"{_PARAMETER}{name}": name for name in density.params}
    known = {"t", "x0", "s", "pair", "kind", "x1", "box", *names}
    unknown = sorted(set(fields) - known)
    if unknown:
        raise ValueError(f"Unknown field {unknown[0]!r}; known are {', '.join(sorted(known))}.")
    params = {name: _number(key, _required(fields, key)) for key, name in names.items()}
    pair = _pair(fields.get("pair"), density.dim)
    x1, box, s = (fields.get(name) for name in ("x1", "box", "s"))
    return Query(
        t=_number("t", _required(fields, "t")),
        x0=_numbers("x0", _required(fields, "x0"), density.dim),
        conditioning={"params": params, "start_time": None if s is None else _number("s", s)},
        pair=pair,
        kind=_kind(fields.get("kind", KINDS[0])),
        x1=None if x1 is None else _numbers("x1", x1, density.dim),
        box=None if box is None else _box(_numbers("box", box, 2 * len(pair))),
    )


def _fields(text: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=True, max_num_fields=100)
    except ValueError as error:
        raise ValueError(f"A query must have the form name=value&...; {error}.") from None
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("A query must contain each field at most once.")
    return fields


def _required(fields: dict[str, str], name: str) -> str:
    if name not in fields:
        raise ValueError(f"The field `{name}` is missing.")
    return fields[name]


def _number(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"`{name}` must be a number; got {text[:40]!r}.") from None
    if not np.isfinite(number):
        raise ValueError(f"`{name}` must be finite; got {number}.")
    return number


def _numbers(name: str, text: str, count: int) -> np.ndarray:
    parts = text.split(",")
    if len(parts) != count:
        raise ValueError(f"`{name}` must be {count} numbers separated by commas; got {len(parts)}.")
    return np.array([_number(name, part) for part in parts])


def _pair(text: str | None, dim: int) -> tuple[int, ...]:
    if dim == 1:
        if text is not None:
            raise ValueError("This density has one component; omit `pair`.")
        return (0,)
    if text is None:
        return (0, 1)
    first, second = _numbers("pair", text, 2)
    known = range(1, dim + 1)
    if first not in known or second not in known or first == second:
        raise ValueError(f"`pair` must be two different components from 1 to {dim}; got {text!r}.")
    return int(first) - 1, int(second) - 1


def _kind(text: str) -> str:
    if text not in KINDS:
        raise ValueError(f"`kind` must be one of {', '.join(KINDS)}; got {text[:40]!r}.")
    return text


def _box(ends: np.ndarray) -> np.ndarray:
    box = ends.reshape(-1, 2)
    if np.any(box[:, 0] >= box[:, 1]):
        raise ValueError("`box` must be a lower and an upper end for each axis, in this order.")
    return box
