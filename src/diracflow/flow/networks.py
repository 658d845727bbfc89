r"""What turns idle components and context into the coefficients of a layer's functions.

Both kinds start at zero, and besides a network have low-degree paths to the shift, which are the
leading terms for every SDE: to first order in the square root of time a density differs from its
Euler step by a quadratic change of variables, and linear equations differ by a linear one.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..sde.quasi_random import generator
from .conditioner import Linear, TanhConditioner, normal_linear
from .polynomial import Quadratic, products

# Which of a component's coefficients is its shift.
_SHIFT = 1
# Features that all components of a layer share, where each has a network of its own.
SHARED = 3
# Size of the first weights with which a component sees others and their starts.
_OTHERS = 0.15


class SharedNetwork(eqx.Module):
    """One network for all components of a layer."""

    conditioner: TanhConditioner
    from_idle: Quadratic
    from_context: Float[Array, "moved c"]

    def __init__(
        self,
        idle_dim: int,
        moved_dim: int,
        context_dim: int,
        outputs: int,
        *,
        hidden: int,
        key: PRNGKeyArray,
    ):
        self.conditioner = TanhConditioner(
            idle_dim + context_dim, hidden, moved_dim * outputs, key=key
        )
        self.from_idle = Quadratic(idle_dim, moved_dim)
        self.from_context = jnp.asarray(np.zeros((moved_dim, context_dim)))

    def __call__(
        self, idle: Float[Array, " idle"], context: Float[Array, " c"]
    ) -> Float[Array, "moved outputs"]:
        """The coefficients of all components."""
        out = self.conditioner(jnp.concatenate([idle, context]))
        out = out.reshape(len(self.from_context), -1)
        return _shifted(out, self.from_idle(idle) + self.from_context @ context)


@dataclasses.dataclass(frozen=True)
class Gaze:
    """What each moved component looks at, as places in idle components followed by the context."""

    partners: Int[np.ndarray, "moved p"]  # idle components
    inputs: Int[np.ndarray, "moved n"]  # with the partners first


class OwnNetworks(eqx.Module):
    """A small network for each component, which looks at a few others.

    One network for all of them would need as many units as components to know the start of each,
    and its read-out would grow with their square. Here parameters grow with the number of
    components, but for the linear path from the idle ones. What is common to all is seen through a
    few shared features.
    """

    lift: Linear
    inner: Float[Array, "moved h n+s"]
    inner_bias: Float[Array, "moved h"]
    readout: Float[Array, "moved outputs h"]
    readout_bias: Float[Array, "moved outputs"]
    straight: Float[Array, "moved n-p"]
    from_idle: Float[Array, "moved idle"]
    curved: Float[Array, "moved products"]
    inputs: Int[Array, "moved n"]
    partner_count: int = eqx.field(static=True)

    def __init__(
        self,
        idle_dim: int,
        context_dim: int,
        gaze: Gaze,
        outputs: int,
        *,
        hidden: int,
        key: PRNGKeyArray,
    ):
        rng = generator(key)
        moved, seen = gaze.inputs.shape
        self.partner_count = pairs = gaze.partners.shape[1]
        self.inputs = jnp.asarray(gaze.inputs)
        self.lift = normal_linear(idle_dim + context_dim, SHARED, bias=0.5, rng=rng)
        # A component's own start counts most: with equal weights for all that it looks at, Beneš in
        # four dimensions was at t = 0.2 after 75 s, with these at t = 2.6.
        weights = np.full(seen + SHARED, _OTHERS)
        weights[pairs], weights[seen:] = 1.0, 0.5
        self.inner = jnp.asarray(weights * rng.normal(size=(moved, hidden, seen + SHARED)))
        self.inner_bias = jnp.asarray(0.5 * rng.normal(size=(moved, hidden)))
        self.readout = jnp.asarray(np.zeros((moved, outputs, hidden)))
        self.readout_bias = jnp.asarray(np.zeros((moved, outputs)))
        self.straight = jnp.asarray(np.zeros((moved, seen - pairs)))
        self.from_idle = jnp.asarray(np.zeros((moved, idle_dim)))
        self.curved = jnp.asarray(np.zeros((moved, pairs * (pairs + 1) // 2)))

    def __call__(
        self, idle: Float[Array, " idle"], context: Float[Array, " c"]
    ) -> Float[Array, "moved outputs"]:
        """The coefficients of all components."""
        both = jnp.concatenate([idle, context])
        # A matrix product: indexing would turn into scatters under differentiation.
        seen = jax.nn.one_hot(self.inputs, len(both), dtype=both.dtype) @ both
        shared = jnp.broadcast_to(jnp.tanh(self.lift(both))[None], (len(seen), SHARED))
        units = _rows(self.inner, jnp.concatenate([seen, shared], axis=1)) + self.inner_bias
        out = _rows(self.readout, jnp.tanh(units)) + self.readout_bias
        partners, others = jnp.split(seen, [self.partner_count], axis=1)
        curved = jnp.sum(self.curved * jax.vmap(products)(partners), axis=1)
        straight = jnp.sum(self.straight * others, axis=1)
        return _shifted(out, self.from_idle @ idle + straight + curved)


def _rows(matrices: Float[Array, "moved out in"], vectors: Float[Array, "moved in"]) -> Array:
    """Each vector times its own matrix; written as a sum, which XLA fuses with its neighbours."""
    return jnp.sum(matrices * vectors[:, None, :], axis=2)


def _shifted(out: Float[Array, "moved outputs"], shift: Float[Array, " moved"]) -> Array:
    return out + shift[:, None] * jax.nn.one_hot(_SHIFT, out.shape[1], dtype=out.dtype)[None]
