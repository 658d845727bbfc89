"""Compiled functions of an object that is evaluated many times.

`equinox.filter_jit` flattens the whole object at each call, and copies NumPy arrays in it to the
device again. For a learned density that takes longer than the evaluation at a point. Here an
object is flattened, and its arrays are placed on the device, once.
"""

import functools
import weakref
from collections.abc import Callable, Hashable
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

    @property
    def contents(self) -> Hashable:
        """Return a key that is equal for two frames of one structure; it may have no hash."""
        return self.structure, tuple((type(leaf), leaf) for leaf in self.leaves)

    def filled(self, arrays: tuple) -> Any:
        """Return the object with its arrays."""
        leaves = [a if leaf is None else leaf for a, leaf in zip(arrays, self.leaves, strict=True)]
        return jax.tree.unflatten(self.structure, leaves)


# The axis of a mesh of all devices.
_DEVICES = "devices"


class Spread(NamedTuple):
    """The axis along which the result, and those arguments that vary, are divided among devices."""

    axis: int
    varied: tuple[bool, ...]  # for each argument

    def specs(self) -> tuple[PartitionSpec, ...]:
        """Return how each argument is divided, and last the result."""
        along = PartitionSpec(*[None] * self.axis, _DEVICES)
        return (*(along if varied else PartitionSpec() for varied in self.varied), along)


# JAX reads this option in each thread; its types do not list it.
_config: Any = jax.config

# All but the arrays of an object, and its arrays on the device. The keys are the identity of the
# object, and whether the precision is float64.
_KNOWN: dict[tuple[int, bool], tuple[_Frame, tuple]] = {}
# Frames by their contents: objects that differ in their arrays only share compiled programs.
_FRAMES: weakref.WeakValueDictionary[Hashable, _Frame] = weakref.WeakValueDictionary()


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function(module, *arrays)`, compiled for each structure and each shape of arrays."""

    @functools.partial(jax.jit, static_argnums=0)
    def fast(frame: _Frame, arrays: tuple, *arguments: Any) -> Any:
        return function(frame.filled(arrays), *arguments)

    @functools.partial(jax.jit, static_argnums=(0, 1, 2))
    def divided(frame: _Frame, mesh: Mesh, spread: Spread, arrays: tuple, *arguments: Any) -> Any:
        *parts, result = spread.specs()
        return jax.shard_map(
            lambda arrays, *parts: function(frame.filled(arrays), *parts),
            mesh=mesh,
            in_specs=(PartitionSpec(), *parts),
            out_specs=result,
            check_vma=False,  # loops over times begin with values that all devices share
        )(arrays, *arguments)

    general = eqx.filter_jit(function)

    @functools.wraps(function)
    def call(module: Any, *arguments: Any, spread: Spread | None = None) -> Any:
        known = _KNOWN.get((id(module), _config.jax_enable_x64)) or _placed(module)
        if known is None:
            return general(module, *arguments)
        frame, arrays = known
        if spread is None:
            return fast(frame, arrays, *arguments)
        mesh = Mesh(np.array(jax.local_devices()), (_DEVICES,))
        parts = [
            jax.device_put(a, NamedSharding(mesh, spec))
            for a, spec in zip(arguments, spread.specs(), strict=False)
        ]
        return divided(frame, mesh, spread, arrays, *parts)

    return call


def _placed(module: Any) -> tuple[_Frame, tuple] | None:
    """Place the arrays of a module on the device; `None` if it is traced or differentiated."""
    leaves = jax.tree.leaves(module)
    if any(isinstance(a, jax.core.Tracer) for a in leaves):
        return None
    # Arrays must stay numbers under a transformation of the user's, and not join its trace.
    with jax.ensure_compile_time_eval():
        arrays = tuple(jnp.asarray(a) if isinstance(a, _ARRAYS) else None for a in leaves)
    key = id(module), _config.jax_enable_x64
    bare = getattr(module, "_without_provenance", lambda: module)
    _KNOWN[key] = _shared(_Frame(bare())), arrays
    weakref.finalize(module, _KNOWN.pop, key, None)
    return _KNOWN[key]


def _shared(frame: _Frame) -> _Frame:
    """Return the frame of the same contents that came first."""
    try:
        return _FRAMES.setdefault(frame.contents, frame)
    except TypeError:  # something in it has no hash
        return frame
