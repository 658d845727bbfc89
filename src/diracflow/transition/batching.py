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
    batch = np.broadcast_shapes(t.shape, *(p.shape[:-1] for p in points))
    rows = math.prod(batch)
    # One device if the user has chosen it, or those of an array.
    free = divide and getattr(jax.config, "jax_default_device") is None  # noqa: B009 (untyped)
    placed = any(isinstance(a, jax.Array) and a.committed for a in arrays)
    devices = jax.local_device_count() if free and rows >= MANY and not placed else 1
    if rows <= ROWS and devices == 1:
        return program(module, *arrays)
    return _joined(functools.partial(program, module), arrays, batch, devices)


def _joined(
    evaluate: Callable[..., Array], arrays: tuple[Array, ...], batch: tuple[int, ...], devices: int
) -> Array:
    """Evaluate batches along the longest axis, and join them."""
    axis, rows = int(np.argmax(batch)), math.prod(batch)
    length = batch[axis]
    size = -(-length // min(-(-rows // (ROWS * devices)), length))
    # With all leading axes, so that the longest has the same number in each array.
    full = [
        a.reshape((1,) * (len(batch) + (index > 0) - a.ndim) + a.shape)
        for index, a in enumerate(arrays)
    ]
    observer, parts = _OBSERVER.get(), []
    for first in range(0, length, size):
        # The last batch overlaps the one before: one compilation serves all.
        begin = max(min(first, length - size), 0)
        entries = (slice(None),) * axis + (slice(begin, begin + size),)
        cuts = [a[entries] if a.shape[axis] > 1 else a for a in full]
        part = evaluate(*cuts) if devices == 1 else _divided(evaluate, cuts, axis, size, devices)
        parts.append(jax.lax.slice_in_dim(part, first - begin, part.shape[axis], axis=axis))
        if observer is not None and size < length and not isinstance(part, jax.core.Tracer):
            jax.block_until_ready(part)
            observer(min(first + size, length) * (rows // length), rows)
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=axis)


def _divided(
    evaluate: Callable[..., Array], cuts: list[Array], axis: int, size: int, devices: int
) -> Array:
    """Evaluate one batch with an equal part on each device."""
    varied = tuple(a.shape[axis] > 1 for a in cuts)
    # The last entry is repeated, so that all devices have equal parts.
    widths = [(0, 0)] * axis + [(0, -size % devices)]
    padded = [
        jnp.pad(a, widths + [(0, 0)] * (a.ndim - axis - 1), mode="edge") if v else a
        for a, v in zip(cuts, varied, strict=True)
    ]
    values = evaluate(*padded, spread=Spread(axis, varied))
    if isinstance(values, jax.core.Tracer):  # a query of known numbers, within the user's `jit`
        return jax.lax.slice_in_dim(values, 0, size, axis=axis)
    # By way of NumPy: the result is on the device where it would be with one device.
    return jnp.asarray(np.asarray(values)[(slice(None),) * axis + (slice(size),)])
