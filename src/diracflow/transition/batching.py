"""Queries of many rows: a piece at a time, each shared among all devices.

What evaluation needs is then needed for one piece at a time, whatever the number of rows. Devices
take equal parts of a piece and do with them what one device does with all: no numbers pass between
them. Within the user's `jit` a query stays whole, and where it is.
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from contextvars import ContextVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .device_cache import Spread

# Rows that one compiled call takes on each device, so that what it holds stays bounded.
PIECE = 2**20
# Rows from which on they are shared among devices; fewer are done before they are distributed.
MANY = 2**14

Watch = Callable[[int, int], object]
_WATCH: ContextVar[Watch | None] = ContextVar("watch", default=None)


@contextlib.contextmanager
def watched(watch: Watch) -> Iterator[None]:
    """Within this context, tell `watch` of rows done and of all, after each piece of a query.

    Queries of a single piece are not told of.
    """
    token = _WATCH.set(watch)
    try:
        yield
    finally:
        _WATCH.reset(token)


def in_pieces(
    evaluate: Callable[..., Array],
    t: Float[Array, "*batch"],
    *points: Float[Array, "*batch k"],
    spread: bool = False,
) -> Array:
    """`evaluate(t, *points)`, a piece of the longest axis at a time where rows are many.

    With `spread`, `evaluate` is of those that `compiled` made, and pieces are shared among all of
    JAX's devices. The result is held twice while pieces are joined.
    """
    arrays = (t, *points)
    devices = _devices() if spread else 1
    least = PIECE if devices == 1 else MANY - 1
    most = math.prod(a.size if a is t else a.size // max(a.shape[-1], 1) for a in arrays)
    if most <= least or any(isinstance(a, jax.core.Tracer) for a in arrays):
        return evaluate(*arrays)
    batch = np.broadcast_shapes(t.shape, *(p.shape[:-1] for p in points))
    axis, rows = int(np.argmax(batch)), math.prod(batch)
    # The product above counts arrays of the same rows more than once.
    if rows <= least or (devices > 1 and _is_placed(arrays)):
        return evaluate(*arrays) if rows <= PIECE else _joined(evaluate, arrays, batch, axis, 1)
    return _joined(evaluate, arrays, batch, axis, devices)


def _devices() -> int:
    """Over how many devices pieces are spread: one if the user has chosen it."""
    chosen = getattr(jax.config, "jax_default_device")  # noqa: B009 (unknown to types)
    return jax.local_device_count() if chosen is None else 1


def _is_placed(arrays: tuple[Array, ...]) -> bool:
    """Whether the user has said on which devices arrays are to be."""
    return any(isinstance(a, jax.Array) and a.committed for a in arrays)


def _joined(
    evaluate: Callable[..., Array],
    arrays: tuple[Array, ...],
    batch: tuple[int, ...],
    axis: int,
    devices: int,
) -> Array:
    length, rows = batch[axis], math.prod(batch)
    size = -(-length // min(-(-rows // (PIECE * devices)), length))
    watch, parts = _WATCH.get(), []
    for first in range(0, length, size):
        # The last piece overlaps the one before: one compilation serves all.
        begin = max(min(first, length - size), 0)
        axes = [axis - len(batch) - (index > 0) for index in range(len(arrays))]
        cuts = [_cut(a, at, begin, size) for a, at in zip(arrays, axes, strict=True)]
        part = evaluate(*cuts) if devices == 1 else _shared(evaluate, cuts, axes, axis, size)
        parts.append(jax.lax.slice_in_dim(part, first - begin, part.shape[axis], axis=axis))
        if watch is not None and size < length and not isinstance(part, jax.core.Tracer):
            jax.block_until_ready(part)
            watch(min(first + size, length) * (rows // length), rows)
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=axis)


def _shared(
    evaluate: Callable[..., Array], cuts: list[Array], axes: list[int], axis: int, size: int
) -> Array:
    """A piece, each device doing an equal part of it."""
    extra = -size % _devices()
    varies = [a.ndim >= -at and a.shape[at] > 1 for a, at in zip(cuts, axes, strict=True)]
    padded = [
        _padded(a, at, extra) if varied else a
        for a, at, varied in zip(cuts, axes, varies, strict=True)
    ]
    places = tuple(
        a.ndim + at if varied else None for a, at, varied in zip(cuts, axes, varies, strict=True)
    )
    values = evaluate(*padded, spread=Spread(places, axis))
    if isinstance(values, jax.core.Tracer):  # a query of known numbers, within the user's `jit`
        return jax.lax.slice_in_dim(values, 0, size, axis=axis)
    # By way of NumPy: the result is where it would be with one device.
    return jnp.asarray(np.asarray(values)[(slice(None),) * axis + (slice(size),)])


def _padded(a: Array, axis: int, extra: int) -> Array:
    """The array with its last entry repeated, so that devices have equal parts."""
    widths = [(0, 0)] * a.ndim
    widths[axis] = (0, extra)
    return jnp.pad(a, widths, mode="edge") if extra else a


def _cut(a: Array, axis: int, begin: int, size: int) -> Array:
    """Some entries along an axis counted from the end, unless the array does not vary there."""
    if a.ndim < -axis or a.shape[axis] == 1:
        return a
    return a[(..., slice(begin, begin + size), *[slice(None)] * (-axis - 1))]
