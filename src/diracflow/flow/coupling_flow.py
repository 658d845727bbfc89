r"""A flow: coupling layers in alternation, stacked and scanned.

Layers come in pairs. The first of a pair moves the second part of the state given the first,
the other moves the first part given the second. All pairs have the same shapes, so their
parameters are stacked along a leading axis and the flow is one `lax.scan`: the time to compile
does not depend on the number of layers.

Which components form the first part is the pair's own affair: it orders them as it likes before
splitting, and restores the order after, so a flow of identity layers is the identity.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from .affine import AffineCoupling

# Makes a layer from the indices of its idle components, the number of those it moves, and a key.
MakeLayer = Callable[[Int[Array, " idle"], int, PRNGKeyArray], AffineCoupling]


class CouplingPair(eqx.Module):
    """Two coupling layers that together move every component."""

    first: AffineCoupling
    second: AffineCoupling
    order: Int[Array, " d"]
    idle_dim: int = eqx.field(static=True)

    def to_source(
        self, x: Float[Array, " d"], context: Float[Array, " c"]
    ) -> tuple[Float[Array, " d"], Float[Array, ""]]:
        u, v = self._split(x)
        v, log_det_v = self.first.to_source(v, u, context)
        u, log_det_u = self.second.to_source(u, v, context)
        return self._join(u, v), log_det_u + log_det_v

    def from_source(self, z: Float[Array, " d"], context: Float[Array, " c"]) -> Float[Array, " d"]:
        u, v = self._split(z)
        u = self.second.from_source(u, v, context)
        v = self.first.from_source(v, u, context)
        return self._join(u, v)

    # The order acts as a matrix product: indexing would turn into scatters under differentiation.
    def _split(self, x: Float[Array, " d"]) -> list[Array]:
        return jnp.split(jax.nn.one_hot(self.order, len(x), dtype=x.dtype) @ x, [self.idle_dim])

    def _join(self, u: Array, v: Array) -> Float[Array, " d"]:
        x = jnp.concatenate([u, v])
        return x @ jax.nn.one_hot(self.order, len(x), dtype=x.dtype)


class CouplingFlow(eqx.Module):
    """Invertible map between state and source, conditioned on a context vector."""

    pairs: CouplingPair  # every array has a leading axis over the pairs

    def to_source(
        self, x: Float[Array, " d"], context: Float[Array, " c"]
    ) -> tuple[Float[Array, " d"], Float[Array, ""]]:
        """The image of a state in the source, and the log-determinant of the map."""

        def step(carry: tuple, pair: CouplingPair) -> tuple:
            x, log_det = carry
            x, log_det_pair = pair.to_source(x, context)
            return (x, log_det + log_det_pair), None

        return jax.lax.scan(step, (x, jnp.zeros((), x.dtype)), self.pairs)[0]

    def from_source(self, z: Float[Array, " d"], context: Float[Array, " c"]) -> Float[Array, " d"]:
        """The state whose image is `z`."""

        def step(z: Array, pair: CouplingPair) -> tuple:
            return pair.from_source(z, context), None

        return jax.lax.scan(step, z, self.pairs, reverse=True)[0]

    def stages(
        self, z: Float[Array, " d"], context: Float[Array, " c"]
    ) -> Float[Array, "layers+1 d"]:
        """The way of a source point to its state: after each layer, the last first."""

        def step(z: Array, pair: CouplingPair) -> tuple:
            u, v = pair._split(z)
            u = pair.second.from_source(u, v, context)
            halfway = pair._join(u, v)
            end = pair._join(u, pair.first.from_source(v, u, context))
            return end, jnp.stack([halfway, end])

        stages: Array
        _, stages = jax.lax.scan(step, z, self.pairs, reverse=True)
        return jnp.concatenate([z[None], stages[::-1].reshape(-1, len(z))])


def coupling_flow(
    make_layer: MakeLayer, idle_dim: int, orders: Int[Array, "pairs d"], *, key: PRNGKeyArray
) -> CouplingFlow:
    """A flow with one pair of layers for each row of `orders`."""
    dim = orders.shape[1]
    assert 0 < idle_dim < dim

    def make_pair(key: PRNGKeyArray, order: Int[Array, " d"]) -> CouplingPair:
        first_key, second_key = jr.split(key)
        first = make_layer(order[:idle_dim], dim - idle_dim, first_key)
        second = make_layer(order[idle_dim:], idle_dim, second_key)
        return CouplingPair(first, second, order, idle_dim)

    return CouplingFlow(eqx.filter_vmap(make_pair)(jr.split(key, len(orders)), orders))
