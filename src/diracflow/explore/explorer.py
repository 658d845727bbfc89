"""Answers to the requests of the page: pictures, error bounds and bridges.

A query is `t=0.5&x0=0.1,-0.2&p.rate=1.5&s=0&pair=1,2&kind=section&x1=1,1&box=-2,2,-3,3`: time,
start, parameters, start time, components shown, section or marginal, end of the bridges, axes.
Axes stay fixed during small changes. The shapes of arrays are the same for every query, so that
each program is compiled once.

A picture must not wait for a certificate or a bridge, which take longer. So each kind of request
has a separate lock, under which queries are answered one at a time. Nor must the first picture wait
until all programs of pictures are compiled: `coarse=1` asks for a kernel estimate of the density
from its draws, for one and two components.
"""

import contextlib
import json
import struct
import threading
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import jax
import jax.random as jr
import numpy as np

from ..density.learned import LearnedDensity
from ..density.summary import landmarks
from ..models.catalogue import exact_of
from ..sde.conditioning import support
from ..sde.laws import Uniform
from ..training.state import Status
from ..transition.transition_density import AbstractTransitionDensity
from ..uses.bridges import bridge

KINDS = ("section", "marginal")
# The shortest time, relative to the horizon. At shorter times the density is a narrow peak.
EARLIEST = 1e-3
# Ranges extend beyond the range of these draws by this fraction of it, so that users see where the
# page warns of starts outside the training law.
_RANGE_DRAWS, _RANGE_MARGIN = 4096, 0.25
# Number of points of a curve, and along each side of a plane.
LINE, PLANE = 401, 96
# Number of draws shown as points; of draws and bins of a marginal.
CLOUD, DRAWS, BINS = 1024, 2**14, 40
# The same for a kernel estimate.
COARSE_LINE, COARSE_PLANE = 101, 48
# The axes extend beyond these quantiles of the draws by this fraction of the range between them.
_QUANTILES, _MARGIN = (0.005, 0.995), 0.15
# Number of times of a certificate, even in the square root of time, and samples at each node.
_TIMES, _SAMPLES = 16, 32
# Number of certificates kept, one for each start.
_CACHED = 64
# Kinds of requests that do not wait for each other.
_LOCKS = ("coarse", "picture", "certificate", "bridge")
# Bridges: time steps, weighted paths, paths shown.
_STEPS, _PATHS, _SHOWN = 60, 64, 12


class Query(NamedTuple):
    """A parsed query. The density checks its values."""

    t: float
    x0: np.ndarray
    conditioning: dict[str, Any]  # keyword arguments `params` and `start_time` of a query
    pair: tuple[int, ...]  # indices of the one or two components shown
    kind: str
    x1: np.ndarray | None
    box: np.ndarray | None  # lower and upper end of each axis
    coarse: bool  # a kernel estimate from draws


def read_query(text: str, density: LearnedDensity) -> Query:
    """Parse `text`; raise a `ValueError` that explains what is wrong with it."""
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=True, max_num_fields=100)
    except ValueError as error:
        raise ValueError(f"A query must have the form name=value&...; {error}.") from None
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("A query must contain each field at most once.")
    names = {f"p.{name}": name for name in density.params}
    known = {"t", "x0", "s", "pair", "kind", "x1", "box", "coarse", *names}
    unknown = sorted(set(fields) - known)
    if unknown:
        raise ValueError(f"Unknown field {unknown[0]!r}; known are {', '.join(sorted(known))}.")
    for name in ("t", "x0", *names):
        if name not in fields:
            raise ValueError(f"The field `{name}` is missing.")
    params = {name: _number(key, fields[key]) for key, name in names.items()}
    pair, kind = _pair(fields.get("pair"), density.dim), fields.get("kind", KINDS[0])
    if kind not in KINDS:
        raise ValueError(f"`kind` must be one of {', '.join(KINDS)}; got {kind[:40]!r}.")
    s, x1 = fields.get("s"), fields.get("x1")
    box = _numbers("box", fields["box"], 2 * len(pair)).reshape(-1, 2) if "box" in fields else None
    if box is not None and np.any(box[:, 0] >= box[:, 1]):
        raise ValueError("`box` must be a lower and an upper end for each axis, in this order.")
    coarse = fields.get("coarse", "0")
    if coarse not in ("0", "1") or (coarse == "1" and density.dim > 2):
        raise ValueError("`coarse` must be 0 or 1, and 0 for more than two components.")
    return Query(
        t=_number("t", fields["t"]),
        x0=_numbers("x0", fields["x0"], density.dim),
        conditioning={"params": params, "start_time": None if s is None else _number("s", s)},
        pair=pair,
        kind=kind,
        x1=None if x1 is None else _numbers("x1", x1, density.dim),
        box=box,
        coarse=coarse == "1",
    )


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


def controls(density: LearnedDensity) -> dict[str, Any]:
    """Return the range and the initial value of every number in a query, in plain Python."""
    centre = landmarks(density.scope.law)["centre"]
    rows = [
        # Four digits, as the sliders show, unless rounding leaves the range.
        {"low": float(a), "high": float(b), "value": float(np.clip(float(f"{v:.4g}"), a, b))}
        for a, b, v in zip(*_ranges(density), centre, strict=True)
    ]
    dim, count, horizon = density.dim, len(density.params), density.horizon
    return {
        "t": {"low": EARLIEST * horizon, "high": horizon, "value": horizon / 2},
        "x0": rows[:dim],
        "params": [
            {"name": name, **row}
            for name, row in zip(density.params, rows[dim : dim + count], strict=True)
        ],
        "start_time": rows[dim + count] if density.start_time is None else None,
    }


def _ranges(density: LearnedDensity) -> tuple[np.ndarray, np.ndarray]:
    with jax.enable_x64(True):
        draws = np.asarray(density.scope.law.sample(jr.key(0), (_RANGE_DRAWS,)))
    low, high = draws.min(axis=0), draws.max(axis=0)
    margin = _RANGE_MARGIN * (high - low)
    times = density.scope.start_times
    laws = [*density.scope.params, *([] if times is None else [times])]
    ends = [*(part.ends for part in density.sde.domain), *map(support, laws)]
    least, most = np.array(ends).T
    # A range that would leave an open domain ends half way between the outermost draw and the end.
    low_end = np.where(low - margin > least, low - margin, (low + least) / 2)
    high_end = np.where(high + margin < most, high + margin, (high + most) / 2)
    # A uniform law of a parameter has no density outside its box; the box includes its ends.
    boxed = np.array([False] * density.dim + [isinstance(law, Uniform) for law in laws])
    return np.where(boxed, least, low_end), np.where(boxed, most, high_end)


def picture(
    density: LearnedDensity, exact: AbstractTransitionDensity | None, query: Query
) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Return a description of a picture, and its arrays: the density, draws, the exact density.

    The first axis of a density is that of the first component shown. All queries use the same
    noise, so that points move continuously.
    """
    laws = [density] if exact is None else [density, exact]
    marginal = query.kind == "marginal" and density.dim > 2
    start, number = (query.t, query.x0), (DRAWS if marginal else CLOUD,)
    samples = [law.sample(jr.key(0), *start, number, **query.conditioning) for law in laws]
    draws = [np.asarray(sample) for sample in samples]
    cloud = draws[0][:CLOUD]
    box = query.box if query.box is not None else _axes(density, query, cloud)
    held = [] if marginal else [i for i in range(density.dim) if i not in query.pair]
    rest = {i: float(cloud[:, i].mean()) for i in held}
    if marginal:
        # Bins are centred on a grid from end to end of the box.
        widths = (box[:, 1] - box[:, 0]) / (BINS - 1)
        edges = (box[:, 0] + widths * (np.arange(BINS + 1)[:, None] - 0.5)).T
        counts = [np.histogramdd(x[:, list(query.pair)], bins=list(edges))[0] for x in draws]
        fields = [count / (DRAWS * np.prod(widths)) for count in counts]
    else:
        count = LINE if len(query.pair) == 1 else PLANE
        grid = _grid(box, count)
        points = np.empty((*grid.shape[:-1], density.dim))
        points[..., list(query.pair)], points[..., held] = grid, list(rest.values())
        fields = [np.asarray(law.prob(points, *start, **query.conditioning)) for law in laws]
    shape = fields[0].shape
    distance = None  # unknown if the picture does not show all components
    if exact is not None and density.dim == len(shape):
        cell = np.prod((box[:, 1] - box[:, 0]) / (np.array(shape) - 1))
        distance = float(0.5 * cell * np.sum(np.abs(fields[0] - fields[1])))
    header = _header(box, shape, cloud) | {
        "exact": exact is not None,
        "rest": {str(i + 1): value for i, value in rest.items()},
        "total_variation": distance,
    }
    return header, [fields[0], cloud, *fields[1:]]


def coarse_picture(
    density: LearnedDensity, query: Query
) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Return a picture from draws alone, for which one program is compiled instead of six."""
    start = query.t, query.x0
    cloud = np.asarray(density.sample(jr.key(0), *start, (CLOUD,), **query.conditioning))
    box = query.box if query.box is not None else _axes(density, query, cloud)
    count = COARSE_LINE if density.dim == 1 else COARSE_PLANE
    field = kernel_estimate(cloud[:, list(query.pair)], _grid(box, count))
    unknown = {"exact": False, "rest": {}, "total_variation": None}
    return _header(box, field.shape, cloud) | unknown, [field, cloud]


def _grid(box: np.ndarray, count: int) -> np.ndarray:
    """Return an even grid over a box, with its first component along the first axis."""
    axes = (np.linspace(low, high, count) for low, high in box)
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)


def kernel_estimate(draws: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Return the density of draws at points, smoothed by a Gaussian kernel with Scott's width."""
    count, dim = draws.shape
    covariance = np.atleast_2d(np.cov(draws, rowvar=False)) * count ** (-2 / (dim + 4))
    whiten = np.linalg.inv(np.linalg.cholesky(covariance))
    gaps = (points[..., None, :] - draws) @ whiten.T
    peak = np.prod(np.diag(whiten)) / (2 * np.pi) ** (dim / 2)
    return peak * np.exp(-0.5 * np.sum(gaps**2, axis=-1)).mean(axis=-1)


def _header(box: np.ndarray, shape: tuple[int, ...], cloud: np.ndarray) -> dict[str, Any]:
    return {
        "box": box.tolist(),
        "shape": list(shape),
        "cloud": list(cloud.shape),
        "mean": cloud.mean(axis=0).tolist(),
        "deviation": cloud.std(axis=0).tolist(),
    }


def _axes(density: LearnedDensity, query: Query, cloud: np.ndarray) -> np.ndarray:
    low, high = np.quantile(cloud, _QUANTILES, axis=0)
    margin = _MARGIN * (high - low)
    low, high = low - margin, high + margin
    if query.x1 is not None:  # show both ends of a bridge
        ends = np.stack([query.x0, query.x1])
        low, high = np.minimum(low, ends.min(axis=0)), np.maximum(high, ends.max(axis=0))
    shown = list(query.pair)
    low, high = low[shown], high[shown]
    # Rounded, so that the axes are constant under small changes.
    width = 2 ** (np.ceil(4 * np.log2(np.maximum(high - low, 1e-12))) / 4)
    step = width / 8
    middle = step * np.round((low + high) / 2 / step)
    half = width / 2 + step / 2  # rounding moves the middle by at most half a step
    least, most = np.array([density.sde.domain[i].ends for i in shown]).T
    return np.stack([np.maximum(middle - half, least), np.minimum(middle + half, most)], axis=-1)


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
        self._locks = {name: threading.Lock() for name in _LOCKS}
        self._certificates = lru_cache(maxsize=_CACHED)(self._certificate)
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
        if query.coarse:
            with self._locks["coarse"]:
                return packed(*coarse_picture(self.density, query))
        with self._locks["picture"]:
            # First, because its error messages are the clearest.
            validity = self._validity(query)
            header, arrays = picture(self.density, self.exact, query)
        return packed(header | validity, arrays)

    def certificate(self, text: str) -> dict[str, Any]:
        """Return the error bound over all times from one start; the `t` of the query is ignored."""
        query = read_query(text, self.density)
        self._validity(query)
        with self._locks["certificate"]:
            params, start_time = query.conditioning["params"], query.conditioning["start_time"]
            return self._certificates(tuple(query.x0), tuple(params.items()), start_time)

    def _certificate(self, x0: tuple, params: tuple, start_time: float | None) -> dict[str, Any]:
        times = self.density.horizon * np.linspace(EARLIEST**0.5, 1.0, _TIMES) ** 2
        conditioning: dict[str, Any] = {"params": dict(params), "start_time": start_time}
        found = self.density.certificate(jr.key(0), times, np.array(x0), _SAMPLES, **conditioning)
        return {name: a.tolist() for name, a in {"t": times, **found._asdict()}.items()}

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

    def warm_up(self) -> None:
        """Compile all programs in advance, in the order in which the page needs them."""
        start = self._controls
        fields = {
            "t": start["t"]["value"],
            "x0": ",".join(str(row["value"]) for row in start["x0"]),
            **{f"p.{row['name']}": row["value"] for row in start["params"]},
            **({} if start["start_time"] is None else {"s": start["start_time"]["value"]}),
        }
        query = "&".join(f"{name}={value}" for name, value in fields.items())
        for request, more in (
            (self.picture, "&coarse=1"),
            (self.picture, ""),
            (self.certificate, ""),
            (self.bridge, f"&x1={fields['x0']}"),
        ):
            with contextlib.suppress(ValueError, RuntimeError):  # the page will show the error
                request(query + more)

    def rest(self, seconds: float) -> None:
        """Stop answering; wait up to `seconds` for each kind of request in progress."""
        for lock in self._locks.values():
            lock.acquire(timeout=seconds)

    def _validity(self, query: Query) -> dict[str, Any]:
        return {
            "coverage": float(self.density.coverage(query.x0, **query.conditioning)),
            "outside": bool(self.density.outside(query.x0, **query.conditioning)),
        }


def packed(header: dict[str, Any], arrays: list[np.ndarray]) -> bytes:
    """Return the header length, the JSON header padded to four bytes, and float32 arrays."""
    text = json.dumps(header, allow_nan=False).encode()
    text += b" " * (-len(text) % 4)
    numbers = b"".join(np.ascontiguousarray(array, "<f4").tobytes() for array in arrays)
    return struct.pack("<I", len(text)) + text + numbers
