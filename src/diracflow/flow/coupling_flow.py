r"""The flow: a scan over stacked blocks of coupling layers.

All blocks have the same shapes, so their parameters are stacked along a leading axis and the flow
is one `lax.scan`. The compile time does not depend on the number of layers.

A block is a coupling or a pair of couplings. The first coupling of a pair moves one part of the
state given the other, and the second does the reverse. A coupling permutes the components before it
splits them, and restores their order afterwards, so a flow of identity layers is the identity.
"""

import abc
from collections.abc import Callable
from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..equation.skew_map import from_normal, shape_size, to_normal


class Layer(Protocol):
    """An invertible map of some components, conditioned on the idle ones and on a context."""

    def to_source(self, moved: Array, idle: Array, context: Array) -> tuple[Array, Array]:
        """Return the image of the moved components, and the log-determinant."""

    def from_source(self, moved: Array, idle: Array, context: Array) -> Array:
        """Return the inverse of `to_source`."""


Indices = Int[np.ndarray, " components"]
# Makes a layer from the indices of the idle components, those of the moved components, and a key.
MakeLayer = Callable[[Indices, Indices, PRNGKeyArray], Layer]


class Mixing(eqx.Module):
    r"""The linear map $x \mapsto (I + A)x$, initialised to the identity.

    A coupling can only shear the state between idle and moved components; mixing can rotate it.
    """

    deviation: Float[Array, "d d"]

    def __init__(self, dim: int):
        self.deviation = jnp.asarray(np.zeros((dim, dim)))

    def to_source(self, x: Float[Array, " d"]) -> tuple[Float[Array, " d"], Float[Array, ""]]:
        """Return the image of a state, and the log-determinant."""
        matrix = self._matrix(x)
        return matrix @ x, jnp.linalg.slogdet(matrix)[1]

    def from_source(self, z: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return the inverse of `to_source`."""
        return jnp.linalg.inv(self._matrix(z)) @ z

    def _matrix(self, x: Array) -> Float[Array, "d d"]:
        return self.deviation + jnp.eye(len(x), dtype=x.dtype)


class Coupling(eqx.Module):
    """One layer that acts on the whole state, after optional linear mixing.

    As in `Pair`, the methods are those of a flow; `stages` omits the argument.
    """

    layer: Layer
    mixing: Mixing | None
    order: Int[Array, " d"]  # idle components first
    idle_dim: int = eqx.field(static=True)

    def to_source(self, x: Array, context: Array) -> tuple[Array, Array]:
        mixed, log_det_mixing = (x, 0.0) if self.mixing is None else self.mixing.to_source(x)
        u, v = self._split(mixed)
        v, log_det = self.layer.to_source(v, u, context)
        return self._join(u, v), log_det + log_det_mixing

    def from_source(self, z: Array, context: Array) -> Array:
        u, v = self._split(z)
        x = self._join(u, self.layer.from_source(v, u, context))
        return x if self.mixing is None else self.mixing.from_source(x)

    def stages(self, z: Array, context: Array) -> Float[Array, "1 d"]:
        return self.from_source(z, context)[None]

    # The permutation is a matrix product, because derivatives of indexing are slow scatters.
    def _split(self, x: Float[Array, " d"]) -> list[Array]:
        return jnp.split(jax.nn.one_hot(self.order, len(x), dtype=x.dtype) @ x, [self.idle_dim])

    def _join(self, u: Array, v: Array) -> Float[Array, " d"]:
        x = jnp.concatenate([u, v])
        return x @ jax.nn.one_hot(self.order, len(x), dtype=x.dtype)


class Pair(eqx.Module):
    """Two couplings that together move every component."""

    first: Coupling
    second: Coupling

    def to_source(self, x: Array, context: Array) -> tuple[Array, Array]:
        x, log_det_first = self.first.to_source(x, context)
        x, log_det_second = self.second.to_source(x, context)
        return x, log_det_first + log_det_second

    def from_source(self, z: Array, context: Array) -> Array:
        return self.first.from_source(self.second.from_source(z, context), context)

    def stages(self, z: Array, context: Array) -> Float[Array, "2 d"]:
        halfway = self.second.from_source(z, context)
        return jnp.stack([halfway, self.first.from_source(halfway, context)])


class AbstractFlow(eqx.Module):
    """Invertible map between state and source, conditioned on a context vector.

    Its floating-point arrays are the parameters. It must start as the identity.
    """

    @abc.abstractmethod
    def to_source(
        self, x: Float[Array, " d"], context: Float[Array, " c"]
    ) -> tuple[Float[Array, " d"], Float[Array, ""]]:
        """Return the image of a state in the source, and the log-determinant of the map."""

    @abc.abstractmethod
    def from_source(self, z: Float[Array, " d"], context: Float[Array, " c"]) -> Float[Array, " d"]:
        """Return the state whose image is `z`."""

    @abc.abstractmethod
    def stages(
        self, z: Float[Array, " d"], context: Float[Array, " c"]
    ) -> Float[Array, "layers+1 d"]:
        """Return `z`, and its images after each layer on the way to the state."""


class CouplingFlow(AbstractFlow):
    """Invertible map between state and source, conditioned on a context vector."""

    blocks: Coupling | Pair  # every array has a leading axis over the blocks

    def to_source(self, x: Array, context: Array) -> tuple[Array, Array]:
        def step(carry: tuple, block: Any) -> tuple:
            x, log_det = carry
            x, log_det_block = block.to_source(x, context)
            return (x, log_det + log_det_block), None

        return jax.lax.scan(step, (x, jnp.zeros((), x.dtype)), self.blocks)[0]

    def from_source(self, z: Array, context: Array) -> Array:
        def step(z: Array, block: Any) -> tuple:
            return block.from_source(z, context), None

        return jax.lax.scan(step, z, self.blocks, reverse=True)[0]

    def stages(self, z: Array, context: Array) -> Float[Array, "layers+1 d"]:
        def step(z: Array, block: Any) -> tuple:
            stages = block.stages(z, context)
            return stages[-1], stages

        stages: Array
        _, stages = jax.lax.scan(step, z, self.blocks, reverse=True)
        return jnp.concatenate([z[None], stages[::-1].reshape(-1, len(z))])


class IdentityFlow(AbstractFlow):
    """The identity, without parameters: the source is the density."""

    def to_source(self, x: Array, context: Array) -> tuple[Array, Array]:
        return x, jnp.zeros((), x.dtype)

    def from_source(self, z: Array, context: Array) -> Array:
        return z

    def stages(self, z: Array, context: Array) -> Float[Array, "1 d"]:
        return z[None]


class SkewedFlow(AbstractFlow):
    """A flow of a law with third cumulants, which are the last part of the context.

    **Arguments:**

    - `flow`: a flow of the standard normal law. It receives the rest of the context.
    """

    flow: AbstractFlow

    def to_source(self, x: Array, context: Array) -> tuple[Array, Array]:
        rest, shape = self._split(context, len(x))
        z, log_det = to_normal(x, shape)
        z, log_det_flow = self.flow.to_source(z, rest)
        return z, log_det + log_det_flow

    def from_source(self, z: Array, context: Array) -> Array:
        rest, shape = self._split(context, len(z))
        return from_normal(self.flow.from_source(z, rest), shape)

    def stages(self, z: Array, context: Array) -> Float[Array, "layers+1 d"]:
        rest, shape = self._split(context, len(z))
        stages = self.flow.stages(z, rest)
        # Skewness is part of the source: all stages have it.
        return jax.vmap(lambda stage: from_normal(stage, shape))(stages)

    def _split(self, context: Array, dim: int) -> list[Array]:
        return jnp.split(context, [len(context) - shape_size(dim)])


def coupling_flow(
    make_layer: MakeLayer,
    idle_dim: int,
    orders: Int[np.ndarray, "blocks d"],
    *,
    mixing: bool,
    key: PRNGKeyArray,
) -> CouplingFlow:
    """Return a flow with one block for each row of `orders`.

    **Arguments:**

    - `make_layer`: makes the layers.
    - `idle_dim`: number of idle components of the first coupling of a block. If zero, a block is a
        single coupling.
    - `orders`: a permutation of the components for each block, idle components first.
    - `mixing`: `True` to add linear mixing before each coupling.
    - `key`: random key for the weights.
    """
    dim = orders.shape[1]

    def coupling(order: Int[np.ndarray, " d"], idle_dim: int, key: PRNGKeyArray) -> Coupling:
        layer = make_layer(order[:idle_dim], order[idle_dim:], key)
        return Coupling(layer, Mixing(dim) if mixing else None, jnp.asarray(order), idle_dim)

    def block(key: PRNGKeyArray, order: Int[np.ndarray, " d"]) -> Coupling | Pair:
        if idle_dim == 0:
            return coupling(order, 0, key)
        first_key, second_key = jr.split(key)
        first = coupling(order, idle_dim, first_key)
        return Pair(first, coupling(np.roll(order, -idle_dim), dim - idle_dim, second_key))

    blocks = [block(*pair) for pair in zip(jr.split(key, len(orders)), orders, strict=True)]
    return CouplingFlow(jax.tree.map(lambda *arrays: np.stack(arrays), *blocks))
