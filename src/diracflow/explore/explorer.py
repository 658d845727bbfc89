"""Answers to the requests of the page.

A picture must not wait for a certificate or a bridge, which take longer. So each kind of request
has a separate lock, under which queries are answered one at a time.
"""

import json
import struct
import threading
from collections import OrderedDict
from typing import Any

import jax.random as jr
import numpy as np

from ..density.learned import LearnedDensity
from ..models.catalogue import exact_of
from ..training.state import Status
from ..transition.transition_density import AbstractTransitionDensity
from ..uses.bridges import bridge
from .controls import EARLIEST, controls
from .picture import described, picture
from .query import Query, read_query

# Number of times of a certificate, even in the square root of time, and samples at each node.
_TIMES, _SAMPLES = 16, 32
# Number of certificates kept, one for each start.
_CACHED = 64
# Bridges: time steps, weighted paths, paths shown.
_STEPS, _PATHS, _SHOWN = 60, 64, 12


class Explorer:
    """A density, the exact one if known, and cached answers."""

    def __init__(
        self,
        density: LearnedDensity,
        exact: AbstractTransitionDensity | None = None,
        title: str = "",
    ):
        if density.horizon <= 0:
            raise ValueError("The horizon of this density is zero: there is nothing to show.")
        self.density, self.title = density, title
        self.exact = exact_of(density.sde) if exact is None else exact
        self._locks = {name: threading.Lock() for name in ("picture", "certificate", "bridge")}
        self._certificates: OrderedDict[tuple, dict[str, Any]] = OrderedDict()
        self._controls = controls(density)

    def model(self) -> dict[str, Any]:
        """Return the data that the page needs once."""
        density, status = self.density, self.density.status
        ended = "" if status is Status.FINISHED else f"Training stopped early. {status.value}"
        return {
            "title": self.title,
            "dim": density.dim,
            "horizon": density.horizon,
            "controls": self._controls,
            "exact": self.exact is not None,
            "status": status.name,
            "ended": ended,
        }

    def picture(self, text: str) -> bytes:
        """Return fields and draws of one query, after a header that describes them."""
        query = read_query(text, self.density)
        with self._locks["picture"]:
            # First, because its error messages are the clearest.
            validity = self._validity(query)
            shown = picture(self.density, self.exact, query)
        arrays = [shown.learned, shown.cloud, *([] if shown.exact is None else [shown.exact])]
        return packed(described(shown) | validity, arrays)

    def certificate(self, text: str) -> dict[str, Any]:
        """Return the error bound over all times from one start; the `t` of the query is ignored."""
        query = read_query(text, self.density)
        self._validity(query)
        with self._locks["certificate"]:
            if query.start not in self._certificates:
                self._certificates[query.start] = self._bounds(query)
            self._certificates.move_to_end(query.start)
            while len(self._certificates) > _CACHED:
                self._certificates.popitem(last=False)
            return self._certificates[query.start]

    def bridge(self, text: str) -> bytes:
        """Return paths between the two ends of a query."""
        query = read_query(text, self.density)
        if query.x1 is None:
            raise ValueError("The field `x1` is missing: a bridge needs two ends.")
        with self._locks["bridge"]:
            found = bridge(
                *(jr.key(0), self.density, query.x0, query.x1, query.t, _STEPS, _PATHS),
                **query.conditioning,
            )
            paths = np.asarray(found.resample(jr.key(1), _SHOWN))
        header = {
            "shape": list(paths.shape),
            "times": np.asarray(found.times).tolist(),
            "effective_share": found.effective_share,
            "log_density": found.log_density,
            "outside": found.outside,
        }
        return packed(header, [paths])

    def warm_up(self, kind: str) -> None:
        """Compile the program for one kind of request in advance."""
        start = self._controls
        fields = {
            "t": start["t"]["value"],
            "x0": ",".join(str(row["value"]) for row in start["x0"]),
            **{f"p.{row['name']}": row["value"] for row in start["params"]},
            **({} if start["start_time"] is None else {"s": start["start_time"]["value"]}),
        }
        if kind == "bridge":
            fields["x1"] = fields["x0"]
        getattr(self, kind)("&".join(f"{name}={value}" for name, value in fields.items()))

    def rest(self, seconds: float) -> None:
        """Stop answering; wait up to `seconds` for each kind of request in progress."""
        for lock in self._locks.values():
            lock.acquire(timeout=seconds)

    def _validity(self, query: Query) -> dict[str, Any]:
        return {
            "coverage": float(self.density.coverage(query.x0, **query.conditioning)),
            "outside": bool(self.density.outside(query.x0, **query.conditioning)),
        }

    def _bounds(self, query: Query) -> dict[str, Any]:
        times = self.density.horizon * np.linspace(EARLIEST**0.5, 1.0, _TIMES) ** 2
        found = self.density.certificate(jr.key(0), times, query.x0, _SAMPLES, **query.conditioning)
        return {name: array.tolist() for name, array in (("t", times), *found._asdict().items())}


def packed(header: dict[str, Any], arrays: list[np.ndarray]) -> bytes:
    """Return the header length, the JSON header padded to four bytes, and float32 arrays."""
    text = json.dumps(header, allow_nan=False).encode()
    text += b" " * (-len(text) % 4)
    numbers = b"".join(np.ascontiguousarray(array, "<f4").tobytes() for array in arrays)
    return struct.pack("<I", len(text)) + text + numbers
