"""Frames of recent queries, so that later ones at the same time and starts need not compute them.

For one point, integrating the mean of a start takes about as long as evaluating the flow, and third
cumulants take two to three times as long. Many queries repeat times and starts. The frames of the
last queries are therefore kept, as parts of conditioning vectors.
"""

import weakref
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from ..flow.ansatz import StandardisedAnsatz
from ..sde.chart import Chart
from ..source.tabulated import TabulatedSource, with_frame
from ..training.state import Trajectory
from ..transition.broadcast import map_points
from ..transition.device_cache import compiled

if TYPE_CHECKING:
    from .learned import TransitionDensity

# Numbers in the conditioning vectors of a query whose frames are kept, and queries of a density.
_MOST, _KEPT = 2**14, 16


class FramedDensity(eqx.Module):
    """The values of a learned density, for conditioning vectors followed by coordinates and frames.

    It holds no more arrays than these values need, because a program receives each of them.
    """

    ansatz: StandardisedAnsatz  # without the parameters of the flow
    shapes: Any = eqx.field(static=True)  # of these parameters
    trajectory: Trajectory
    chart: Chart

    def __init__(self, density: "TransitionDensity"):
        self.trajectory, self.chart = density.trajectory, density.chart
        ansatz: Any = density.ansatz
        parameters, rest = eqx.partition(ansatz.flow, eqx.is_inexact_array)
        shape = lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype)
        self.shapes = jax.tree.map(shape, parameters)
        parts = lambda a: (a.source, a.flow)
        self.ansatz = eqx.tree_at(parts, ansatz, (TabulatedSource(ansatz.source), rest))

    def _at_time(self, t: Float[Array, ""]) -> tuple[StandardisedAnsatz, Array]:
        theta = self.trajectory(t)
        like = jax.tree.map(lambda a: jnp.zeros(a.shape, theta.dtype), self.shapes)
        flow = eqx.combine(ravel_pytree(like)[1](theta), self.ansatz.flow)
        return eqx.tree_at(lambda a: a.flow, self.ansatz, flow), t

    def _log_prob(
        self, state: tuple[StandardisedAnsatz, Array], x: Array, x0: Float[Array, " m"]
    ) -> Float[Array, ""]:
        (ansatz, t), (y, log_slope) = state, self.chart.end(x)
        return ansatz.log_prob(y, t, x0[len(ansatz.centre) :]) + log_slope


# By the identity of the density: comparison of densities compares their arrays.
_FRAMED: dict[int, tuple[FramedDensity | None, dict]] = {}


@compiled
def _rows(density: "TransitionDensity", t: Array, x0: Array) -> Array:
    """Return conditioning vectors of a `FramedDensity`, valid at one time."""

    def row(clock: Array, x0: Array) -> Array:
        framed = with_frame(density.ansatz.source, clock, density.chart.start(x0), moving=False)
        return jnp.concatenate([x0, framed])

    return map_points(jnp.sqrt, row, t, x0)


def framed(
    density: "TransitionDensity", t: Float[Array, "*batch"], start: Float[Array, "*batch d+k"]
) -> tuple[Any, Float[Array, "*batch"], Float[Array, "*batch m"]]:
    """Return a density, times and conditioning vectors with the same values, and with frames.

    Frames are used for queries at one known time from not too many known starts.
    """
    traced = isinstance(t, jax.core.Tracer) or isinstance(start, jax.core.Tracer)
    if traced or t.size != 1 or not 0 < start.size <= _MOST:
        return density, t, start
    one, known = _FRAMED.get(id(density)) or _begun(density)
    if one is None:
        return density, t, start
    times, values = np.asarray(t), np.asarray(start)
    key = times.tobytes(), times.shape, values.tobytes(), values.shape, values.dtype
    if key not in known:
        if len(known) >= _KEPT:
            del known[next(iter(known))]
        # Known numbers stay known within a transformation of the user's. Programs begin sooner
        # with a time that is on the device already.
        with jax.ensure_compile_time_eval():
            known[key] = jnp.asarray(t), _rows(density, jnp.reshape(t, ()), start)
    return one, *known[key]


def _begun(density: "TransitionDensity") -> tuple[FramedDensity | None, dict]:
    """Return the entry of a density that is evaluated for the first time."""
    one = FramedDensity(density) if density.ansatz.standardised else None
    entry: tuple[FramedDensity | None, dict] = (one, {})
    _FRAMED[id(density)] = entry
    weakref.finalize(density, _FRAMED.pop, id(density), None)
    return entry
