"""Data of a picture: values on a grid, draws, and axes that stay fixed during small changes.

Shapes are the same for every query, so that each program is compiled once.
"""

from typing import Any, NamedTuple

import jax.random as jr
import numpy as np

from ..density.learned import LearnedDensity
from ..transition.transition_density import AbstractTransitionDensity
from .query import Query

# Number of points of a curve, and along each side of a plane.
LINE, PLANE = 401, 96
# Number of draws shown as points; of draws and bins of a marginal.
CLOUD, DRAWS, BINS = 1024, 2**14, 40
# The axes extend beyond these quantiles of the draws by this fraction of the range between them.
_QUANTILES, _MARGIN = (0.005, 0.995), 0.15


class Picture(NamedTuple):
    """Density values over a box, and draws of all components."""

    box: np.ndarray  # lower and upper end of each axis
    cloud: np.ndarray
    learned: np.ndarray  # the first array axis is that of the first component shown
    exact: np.ndarray | None
    rest: dict[int, float]  # values of the components held fixed, by index

    @property
    def total_variation(self) -> float | None:
        """Distance to the exact density, or `None` if the picture does not show all components."""
        if self.exact is None or self.cloud.shape[1] > self.learned.ndim:
            return None
        cell = np.prod((self.box[:, 1] - self.box[:, 0]) / (np.array(self.learned.shape) - 1))
        return float(0.5 * cell * np.sum(np.abs(self.learned - self.exact)))


def picture(
    density: LearnedDensity, exact: AbstractTransitionDensity | None, query: Query
) -> Picture:
    """Evaluate a query. All queries use the same noise, so that points move continuously."""
    laws = [density] if exact is None else [density, exact]
    marginal = query.kind == "marginal" and density.dim > 2
    draws = [_draws(law, query, DRAWS if marginal else CLOUD) for law in laws]
    cloud = draws[0][:CLOUD]
    box = query.box if query.box is not None else _axes(density, query, cloud)
    held = [] if marginal else [i for i in range(density.dim) if i not in query.pair]
    rest = {i: float(cloud[:, i].mean()) for i in held}
    if marginal:
        fields = [_histogram(points[:, list(query.pair)], box) for points in draws]
    else:
        points = _grid(box, query.pair, rest)
        fields = [_values(law, query, points) for law in laws]
    return Picture(box, cloud, fields[0], None if exact is None else fields[1], rest)


def _draws(law: AbstractTransitionDensity, query: Query, count: int) -> np.ndarray:
    return np.asarray(law.sample(jr.key(0), query.t, query.x0, (count,), **query.conditioning))


def _values(law: AbstractTransitionDensity, query: Query, points: np.ndarray) -> np.ndarray:
    values = law.prob(points.reshape(-1, points.shape[-1]), query.t, query.x0, **query.conditioning)
    return np.asarray(values).reshape(points.shape[:-1])


def _grid(box: np.ndarray, pair: tuple[int, ...], rest: dict[int, float]) -> np.ndarray:
    """Return the points of the picture, with all components."""
    sides = [np.linspace(low, high, LINE if len(pair) == 1 else PLANE) for low, high in box]
    shown = np.meshgrid(*sides, indexing="ij")
    columns = dict(zip(pair, shown, strict=True))
    columns |= {i: np.full(shown[0].shape, value) for i, value in rest.items()}
    return np.stack([columns[i] for i in range(len(columns))], axis=-1)


def _histogram(points: np.ndarray, box: np.ndarray) -> np.ndarray:
    """Return a histogram whose bins are centred on a grid from end to end of the box."""
    widths = (box[:, 1] - box[:, 0]) / (BINS - 1)
    edges = [
        low + width * (np.arange(BINS + 1) - 0.5)
        for (low, _), width in zip(box, widths, strict=True)
    ]
    counts, *_ = np.histogramdd(points, bins=edges)
    return counts / (len(points) * np.prod(widths))


def _axes(density: LearnedDensity, query: Query, cloud: np.ndarray) -> np.ndarray:
    low, high = np.quantile(cloud, _QUANTILES, axis=0)
    margin = _MARGIN * (high - low)
    low, high = low - margin, high + margin
    if query.x1 is not None:  # show both ends of a bridge
        ends = np.stack([query.x0, query.x1])
        low, high = np.minimum(low, ends.min(axis=0)), np.maximum(high, ends.max(axis=0))
    return np.array([_axis(low[i], high[i], *density.sde.domain[i].ends) for i in query.pair])


def _axis(low: float, high: float, least: float, most: float) -> tuple[float, float]:
    """Return an interval around `(low, high)` that is constant under small changes of it."""
    width = 2 ** (np.ceil(4 * np.log2(max(high - low, 1e-12))) / 4)
    step = width / 8
    middle = step * np.round((low + high) / 2 / step)
    half = width / 2 + step / 2  # rounding moves the middle by at most half a step
    return float(max(middle - half, least)), float(min(middle + half, most))


def described(shown: Picture) -> dict[str, Any]:
    """Return all data but the arrays, in plain Python."""
    return {
        "box": shown.box.tolist(),
        "shape": list(shown.learned.shape),
        "cloud": list(shown.cloud.shape),
        "exact": shown.exact is not None,
        "rest": {str(i + 1): value for i, value in shown.rest.items()},
        "mean": shown.cloud.mean(axis=0).tolist(),
        "deviation": shown.cloud.std(axis=0).tolist(),
        "total_variation": shown.total_variation,
    }
