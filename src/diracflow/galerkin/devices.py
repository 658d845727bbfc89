r"""Where collocation points live, and how many of their rows are held at once.

Points are divided over the devices of a mesh. What is computed at a point is computed where the
point lives; sums over points are sums over devices; parameters, and what is solved for them, are
the same everywhere. So a device holds its share of the rows and all of the small matrices.
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

_AXIS = "points"
_DIVIDED, _EVERYWHERE = PartitionSpec(_AXIS), PartitionSpec()


@dataclasses.dataclass(frozen=True)
class Layout:
    """Devices that points are divided over, and how many rows each of them holds at once.

    Without a mesh all points live on JAX's default device. Without a chunk all rows are held, as
    tables; with one, they are made again whenever they are needed, so many at a time.
    """

    mesh: Mesh | None = None
    chunk: int | None = None

    @property
    def devices(self) -> int:
        """How many there are."""
        return 1 if self.mesh is None else self.mesh.size

    @property
    def local_devices(self) -> int:
        """How many of them belong to this process."""
        return 1 if self.mesh is None else len(self.mesh.local_devices)

    @property
    def processes(self) -> frozenset[int]:
        """Which processes they belong to."""
        if self.mesh is None:
            return frozenset({jax.process_index()})
        return frozenset(device.process_index for device in self.mesh.devices.flat)

    def padding(self, rows: int) -> int:
        """Rows to add, so that all devices get equally many."""
        return -rows % self.devices

    def divide(self, rows: np.ndarray) -> Array:
        """Rows, each on its device. Every process has all of them, and keeps its own."""
        return self._put(rows, _DIVIDED)

    def repeat(self, tree: Any) -> Any:
        """A tree whose arrays are on every device."""
        if self.mesh is None:
            return tree

        def put(leaf: Any) -> Any:
            array = isinstance(leaf, np.ndarray | jax.Array)
            return self._put(np.asarray(leaf), _EVERYWHERE) if array else leaf

        return jax.tree.map(put, tree)

    def each(self, function: Callable, *rows: Array) -> Any:
        """`function` of each device's own rows; its results are rows again.

        `function` is a method of a module or an `eqx.Partial` if it depends on arrays; a closure
        over arrays would not do, for these would be seen from outside of the device.
        """
        return function(*rows) if self.mesh is None else self._mapped(function, False, rows)

    def total(self, function: Callable, *rows: Array) -> Any:
        """The sum, over devices, of `function` of each device's own rows."""
        return function(*rows) if self.mesh is None else self._mapped(function, True, rows)

    def whole(self, value: Array) -> Array:
        """A value that every device is to have all of."""
        if self.mesh is None:
            return value
        return jax.lax.with_sharding_constraint(value, NamedSharding(self.mesh, _EVERYWHERE))

    def agreed(self, value: Array) -> Array:
        """The first device's word for a value that all have computed.

        Processors of two kinds round differently, and parameters must not part.
        """
        if self.mesh is None:
            return value

        def first(value: Array) -> Array:
            mine = jax.lax.axis_index(_AXIS) == 0
            return jax.lax.psum(jnp.where(mine, value, jnp.zeros_like(value)), _AXIS)

        return jax.shard_map(
            first, mesh=self.mesh, in_specs=_EVERYWHERE, out_specs=_EVERYWHERE, check_vma=False
        )(value)

    def _mapped(self, function: Callable, summed: bool, rows: tuple[Array, ...]) -> Any:
        shared, rest = eqx.partition(function, eqx.is_array)

        def own(shared: Any, *rows: Array) -> Any:
            found = eqx.combine(shared, rest)(*rows)
            return jax.lax.psum(found, _AXIS) if summed else found

        return jax.shard_map(
            own,
            mesh=self.mesh,
            in_specs=(_EVERYWHERE, *(_DIVIDED,) * len(rows)),
            out_specs=_EVERYWHERE if summed else _DIVIDED,
            # A drift may loop from a constant, which the check of what varies refuses.
            check_vma=False,
        )(shared, *rows)

    def _put(self, value: np.ndarray, spec: PartitionSpec) -> Array:
        if self.mesh is None:
            return jnp.asarray(value)
        sharding = NamedSharding(self.mesh, spec)
        return jax.make_array_from_callback(value.shape, sharding, lambda part: value[part])


def mesh_over(devices: int | Sequence[jax.Device] | None) -> Mesh | None:
    """A mesh over some devices: so many of JAX's, those named, or all; none for one device.

    A default device that the user has set for JAX is the only one, unless others are asked for.
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
                f"has; got {devices}. On a CPU, the environment variable "
                f"XLA_FLAGS=--xla_force_host_platform_device_count={max(devices, 1)} makes more."
            )
        return known[:devices]
    listed = list(devices) if isinstance(devices, list | tuple) else []
    if not listed or not all(isinstance(device, jax.Device) for device in listed):
        raise ValueError(
            "`devices` must be a number of devices, or a list of some of `jax.devices()`; got "
            f"{devices!r}."
        )
    if len(set(listed)) != len(listed):
        raise ValueError(f"`devices` must name each device once; got {devices!r}.")
    return listed


def checked_chunk(chunk: int | None) -> int | None:
    """A number of rows to hold at once."""
    if chunk is None:
        return None
    if isinstance(chunk, bool) or not isinstance(chunk, int | np.integer) or chunk < 1:
        raise ValueError(f"`chunk` must be a whole number of rows, at least 1; got {chunk!r}.")
    return int(chunk)
