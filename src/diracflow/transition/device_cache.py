"""Compiled functions of an object that is asked many times.

`equinox.filter_jit` looks through the whole object at each call, and NumPy arrays in it are handed
to the device anew: for a learned density that takes longer than to evaluate it at a point. Here the
arrays of an object are taken apart and placed on the device once.
"""

import functools
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

_ARRAYS = (jax.Array, np.ndarray, np.generic)


class _Frame:
    """All of an object but its arrays; compared by identity, which hashes fast."""

    def __init__(self, tree: Any):
        leaves, self.structure = jax.tree.flatten(tree)
        self.leaves = [None if isinstance(leaf, _ARRAYS) else leaf for leaf in leaves]

    def filled(self, arrays: tuple) -> Any:
        """The object with its arrays."""
        leaves = [a if leaf is None else leaf for a, leaf in zip(arrays, self.leaves, strict=True)]
        return jax.tree.unflatten(self.structure, leaves)


class _Resident:
    """An object whose arrays are on the device, in one precision."""

    def __init__(self, module: Any):
        self.frame = _Frame(module)
        # Under a transformation of the user's, too, these are numbers and not part of the trace.
        with jax.ensure_compile_time_eval():
            self.arrays = tuple(
                jnp.asarray(leaf) if isinstance(leaf, _ARRAYS) else None
                for leaf in jax.tree.leaves(module)
            )


# The axis of a mesh of all devices.
_DEVICES = "devices"


class Spread(NamedTuple):
    """Axes along which arguments and result are shared among devices; `None`: all have it all."""

    arguments: tuple[int | None, ...]
    result: int


def _along(axis: int | None) -> PartitionSpec:
    return PartitionSpec() if axis is None else PartitionSpec(*[None] * axis, _DEVICES)


# By the identity of the object and the precision.
_KNOWN: dict[tuple[int, Any], _Resident] = {}


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function(module, *arrays)`, compiled for each module and each shape of the arrays."""

    @functools.partial(jax.jit, static_argnums=0)
    def fast(frame: _Frame, arrays: tuple, *arguments: Any) -> Any:
        return function(frame.filled(arrays), *arguments)

    @functools.partial(jax.jit, static_argnums=(0, 1, 2))
    def shared(frame: _Frame, mesh: Mesh, spread: Spread, arrays: tuple, *arguments: Any) -> Any:
        return jax.shard_map(
            lambda arrays, *parts: function(frame.filled(arrays), *parts),
            mesh=mesh,
            in_specs=(PartitionSpec(), *map(_along, spread.arguments)),
            out_specs=_along(spread.result),
            check_vma=False,  # loops over times begin with values that all devices share
        )(arrays, *arguments)

    general = eqx.filter_jit(function)

    @functools.wraps(function)
    def call(module: Any, *arguments: Any, spread: Spread | None = None) -> Any:
        resident = _resident(module)
        if resident is None:
            return general(module, *arguments)
        if spread is None:
            return fast(resident.frame, resident.arrays, *arguments)
        mesh = Mesh(np.array(jax.local_devices()), (_DEVICES,))
        placed = [
            jax.device_put(a, NamedSharding(mesh, _along(axis)))
            for a, axis in zip(arguments, spread.arguments, strict=True)
        ]
        return shared(resident.frame, mesh, spread, resident.arrays, *placed)

    return call


def _resident(module: Any) -> _Resident | None:
    """What is known of a module; `None` of one that is being traced or differentiated."""
    key = id(module), jnp.result_type(float)
    found = _KNOWN.get(key)
    if found is None and not any(isinstance(a, jax.core.Tracer) for a in jax.tree.leaves(module)):
        found = _KNOWN[key] = _Resident(module)
        weakref.finalize(module, _KNOWN.pop, key, None)
    return found


def asked(module: Any, method: str, *arguments: Any, **keywords: Any) -> Any:
    """A method's answer, without binding the method first.

    Equinox makes a module of every bound method and looks through all of it, which for a learned
    density shows beside the evaluation itself.
    """
    return getattr(type(module), method)(module, *arguments, **keywords)
