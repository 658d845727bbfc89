r"""Distribution of collocation points over devices, and of their rows over chunks.

Points are sharded over the devices of a mesh. Functions of a point are evaluated on its device, and
sums over points are reduced over devices. The parameters and the normal equations are replicated.
A device therefore holds its share of the rows and all of the small matrices.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from ..sde.argument_checks import checked_count

_AXIS = "points"
_SHARDED, _REPLICATED = PartitionSpec(_AXIS), PartitionSpec()


@dataclasses.dataclass(frozen=True)
class Layout:
    """The devices over which points are sharded, and the number of rows held at once.

    **Arguments:**

    - `mesh`: the devices. If `None`, all points are on JAX's default device.
    - `chunk`: number of rows of the Jacobian that a device holds at once. If `None`, all rows are
        stored; otherwise they are recomputed chunk by chunk whenever they are needed.
    """

    mesh: Mesh | None = None
    chunk: int | None = None

    @property
    def devices(self) -> int:
        """Number of devices."""
        return 1 if self.mesh is None else self.mesh.size

    @property
    def local_devices(self) -> int:
        """Number of devices that belong to this process."""
        return 1 if self.mesh is None else len(self.mesh.local_devices)

    @property
    def processes(self) -> frozenset[int]:
        """Indices of the processes to which the devices belong."""
        if self.mesh is None:
            return frozenset({jax.process_index()})
        return frozenset(device.process_index for device in self.mesh.devices.flat)

    def padding(self, rows: int) -> int:
        """Return the number of rows to add, so that all devices have equally many."""
        return -rows % self.devices

    def divide(self, rows: np.ndarray) -> Array:
        """Return the rows, sharded. Every process passes all rows and keeps its share."""
        return self._put(rows, _SHARDED)

    def repeat(self, tree: Any) -> Any:
        """Return the tree with its arrays replicated on every device."""
        if self.mesh is None:
            return tree

        def put(leaf: Any) -> Any:
            array = isinstance(leaf, np.ndarray | jax.Array)
            return self._put(np.asarray(leaf), _REPLICATED) if array else leaf

        return jax.tree.map(put, tree)

    def each(self, function: Callable, *rows: Array) -> Any:
        """Return `function` of the rows of each device, as sharded rows.

        If `function` depends on arrays, it must be a method of a module or an `eqx.Partial`.
        Arrays in a closure would not be placed on the devices.
        """
        return function(*rows) if self.mesh is None else self._mapped(function, False, rows)

    def total(self, function: Callable, *rows: Array) -> Any:
        """Return the sum over devices of `function` of the rows of each."""
        return function(*rows) if self.mesh is None else self._mapped(function, True, rows)

    def whole(self, value: Array) -> Array:
        """Return the value, replicated on every device."""
        if self.mesh is None:
            return value
        return jax.lax.with_sharding_constraint(value, NamedSharding(self.mesh, _REPLICATED))

    def agreed(self, value: Array) -> Array:
        """Return the first device's value of a replicated result.

        Processors of different types round differently, but all must use the same parameters.
        """
        if self.mesh is None:
            return value

        def first(value: Array) -> Array:
            mine = jax.lax.axis_index(_AXIS) == 0
            return jax.lax.psum(jnp.where(mine, value, jnp.zeros_like(value)), _AXIS)

        return jax.shard_map(
            first, mesh=self.mesh, in_specs=_REPLICATED, out_specs=_REPLICATED, check_vma=False
        )(value)

    def _mapped(self, function: Callable, summed: bool, rows: tuple[Array, ...]) -> Any:
        shared, rest = eqx.partition(function, eqx.is_array)

        def own(shared: Any, *rows: Array) -> Any:
            found = eqx.combine(shared, rest)(*rows)
            return jax.lax.psum(found, _AXIS) if summed else found

        return jax.shard_map(
            own,
            mesh=self.mesh,
            in_specs=(_REPLICATED, *(_SHARDED,) * len(rows)),
            out_specs=_REPLICATED if summed else _SHARDED,
            # A loop in a drift may start from a constant, which the check rejects.
            check_vma=False,
        )(shared, *rows)

    def _put(self, value: np.ndarray, spec: PartitionSpec) -> Array:
        if self.mesh is None:
            return jnp.asarray(value)
        sharding = NamedSharding(self.mesh, spec)
        return jax.make_array_from_callback(value.shape, sharding, lambda part: value[part])


def mesh_over(devices: int | Sequence[jax.Device] | None) -> Mesh | None:
    """Return a mesh over devices, or `None` for the default device alone.

    **Arguments:**

    - `devices`: a number of devices, a list of devices, or `None` for all. If the user has set
        JAX's default device, `None` selects that one.
    """
    chosen = _chosen(devices)
    default = jax.local_devices()[0]
    return None if chosen == [default] or not chosen else Mesh(np.array(chosen), (_AXIS,))


def _chosen(devices: int | Sequence[jax.Device] | None) -> list[jax.Device]:
    known = jax.devices()
    if devices is None:
        default = getattr(jax.config, "jax_default_device")  # noqa: B009 (unknown to types)
        return known if default is None else []
    if isinstance(devices, int) and not isinstance(devices, bool):
        if not 1 <= devices <= len(known):
            raise ValueError(
                f"`devices` must lie between 1 and {len(known)}, the number of devices that JAX "
                f"has; got {devices}. On a CPU, set the environment variable "
                f"XLA_FLAGS=--xla_force_host_platform_device_count={max(devices, 1)} to have more."
            )
        return known[:devices]
    listed = list(devices) if isinstance(devices, list | tuple) else []
    if not listed or not all(isinstance(device, jax.Device) for device in listed):
        raise ValueError(
            "`devices` must be a number of devices, or a list of members of `jax.devices()`; got "
            f"{devices!r}."
        )
    if len(set(listed)) != len(listed):
        raise ValueError(f"`devices` must name each device once; got {devices!r}.")
    return listed


def checked_chunk(chunk: int | None) -> int | None:
    """Return `chunk`, the number of rows to hold at once, after checking it."""
    return None if chunk is None else checked_count("chunk", chunk)
