"""Queries of many rows, evaluated in batches that are divided among all devices.

Memory is then bounded whatever the number of rows. Devices take equal parts of a batch, and no
numbers pass between them. Within the user's `jit` a query is not divided.
"""

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .device_cache import Spread

# Rows of a batch on each device, which bound the memory of one compiled call.
ROWS = 2**20
# Rows from which on they are divided among devices; fewer take less time than their transfer.
MANY = 2**14

Observer = Callable[[int, int], object]
_OBSERVER: ContextVar[Observer | None] = ContextVar("observer", default=None)


@contextlib.contextmanager
def observed(observer: Observer) -> Iterator[None]:
    """Within this context, call `observer(done, rows)` after each batch of a query.

    It is not called for queries of a single batch.
    """
    token = _OBSERVER.set(observer)
    try:
        yield
    finally:
        _OBSERVER.reset(token)


def in_batches(
    program: Callable[..., Array],
    module: Any,
    t: Float[Array, "*batch"],
    *points: Float[Array, "*batch k"],
    divide: bool = True,
) -> Array:
    """Return `program(module, t, *points)`, evaluated in batches along the longest axis.

    `program` is compiled by `compiled`. With `divide`, batches are divided among all of JAX's
    devices. The result is held twice while batches are joined.
    """
    arrays = (t, *points)
    # An upper bound: arrays of the same rows count more than once.
    most = t.size
    for p in points:
        most *= p.size // (p.shape[-1] or 1)
    if most <= min(ROWS, MANY - 1) or any(isinstance(a, jax.core.Tracer) for a in arrays):
        return program(module, *arrays)
    evaluate = functools.partial(program, module)
    batch = np.broadcast_shapes(t.shape, *(p.shape[:-1] for p in points))
    axis, rows = int(np.argmax(batch)), math.prod(batch)
    devices = _devices() if divide else 1
    if rows < MANY or (devices > 1 and _is_placed(arrays)):
        devices = 1
    if rows <= ROWS and devices == 1:
        return evaluate(*arrays)
    return _joined(evaluate, arrays, batch, axis, devices)


def _devices() -> int:
    """Return the number of devices for a query: one if the user has chosen it."""
    chosen = getattr(jax.config, "jax_default_device")  # noqa: B009 (unknown to types)
    return jax.local_device_count() if chosen is None else 1


def _is_placed(arrays: tuple[Array, ...]) -> bool:
    """Return `True` if the user has chosen the devices of an array."""
    return any(isinstance(a, jax.Array) and a.committed for a in arrays)


def _joined(
    evaluate: Callable[..., Array],
    arrays: tuple[Array, ...],
    batch: tuple[int, ...],
    axis: int,
    devices: int,
) -> Array:
    length, rows = batch[axis], math.prod(batch)
    size = -(-length // min(-(-rows // (ROWS * devices)), length))
    observer, parts = _OBSERVER.get(), []
    for first in range(0, length, size):
        # The last batch overlaps the one before: one compilation serves all.
        begin = max(min(first, length - size), 0)
        axes = [axis - len(batch) - (index > 0) for index in range(len(arrays))]
        cuts = [_cut(a, at, begin, size) for a, at in zip(arrays, axes, strict=True)]
        part = evaluate(*cuts) if devices == 1 else _divided(evaluate, cuts, axes, axis, size)
        parts.append(jax.lax.slice_in_dim(part, first - begin, part.shape[axis], axis=axis))
        if observer is not None and size < length and not isinstance(part, jax.core.Tracer):
            jax.block_until_ready(part)
            observer(min(first + size, length) * (rows // length), rows)
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=axis)


def _divided(
    evaluate: Callable[..., Array], cuts: list[Array], axes: list[int], axis: int, size: int
) -> Array:
    """Evaluate one batch with an equal part on each device."""
    extra = -size % _devices()
    varies = [a.ndim >= -at and a.shape[at] > 1 for a, at in zip(cuts, axes, strict=True)]
    padded = [
        _padded(a, at, extra) if varied else a
        for a, at, varied in zip(cuts, axes, varies, strict=True)
    ]
    along = tuple(
        a.ndim + at if varied else None for a, at, varied in zip(cuts, axes, varies, strict=True)
    )
    values = evaluate(*padded, spread=Spread(along, axis))
    if isinstance(values, jax.core.Tracer):  # a query of known numbers, within the user's `jit`
        return jax.lax.slice_in_dim(values, 0, size, axis=axis)
    # By way of NumPy: the result is on the device where it would be with one device.
    return jnp.asarray(np.asarray(values)[(slice(None),) * axis + (slice(size),)])


def _padded(a: Array, axis: int, extra: int) -> Array:
    """Repeat the last entry, so that all devices have equal parts."""
    widths = [(0, 0)] * a.ndim
    widths[axis] = (0, extra)
    return jnp.pad(a, widths, mode="edge") if extra else a


def _cut(a: Array, axis: int, begin: int, size: int) -> Array:
    """Take some entries along an axis counted from the end, unless the array has one there."""
    if a.ndim < -axis or a.shape[axis] == 1:
        return a
    return a[(..., slice(begin, begin + size), *[slice(None)] * (-axis - 1))]
