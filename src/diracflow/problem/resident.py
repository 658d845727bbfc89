"""Compiled functions of an object that is asked many times.

`equinox.filter_jit` looks through the whole object at each call, and NumPy arrays in it are handed
to the device anew: for a learned density that takes longer than to evaluate it at a point. Here the
arrays of an object are taken apart and placed on the device once.
"""

import functools
import weakref
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

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


# By the identity of the object and the precision.
_KNOWN: dict[tuple[int, Any], _Resident] = {}


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function(module, *arrays)`, compiled for each module and each shape of the arrays."""

    @functools.partial(jax.jit, static_argnums=0)
    def fast(frame: _Frame, arrays: tuple, *arguments: Any) -> Any:
        return function(frame.filled(arrays), *arguments)

    general = eqx.filter_jit(function)

    @functools.wraps(function)
    def call(module: Any, *arguments: Any) -> Any:
        resident = _resident(module)
        if resident is None:
            return general(module, *arguments)
        return fast(resident.frame, resident.arrays, *arguments)

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
