r"""Networks that map idle components and context to the coefficients of a layer.

Their outputs are initially zero. In addition to a network, those of monotone layers have linear and
quadratic paths to the shift, which are the leading terms for every SDE: to first order in the
square root of time a density differs from its Euler step by a quadratic change of variables, and
for linear equations by a linear one.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..sde.quasi_random import generator


class GRUConditioner(eqx.Module):
    r"""One GRU cell between two linear maps.

    The state $h_0 = \tanh(Wc + w)$ is updated once by a GRU cell with input $c$, and the result is
    read out linearly. With $h_0 = 0$ the recurrent weights would have no effect. The read-out is
    initialised to zero, so the output is initially zero for every input.
    """

    lift: eqx.nn.Linear
    cell: eqx.nn.GRUCell
    readout: eqx.nn.Linear

    def __init__(self, in_size: int, hidden: int, out_size: int, *, key: PRNGKeyArray):
        lift_key, cell_key, readout_key = jr.split(key, 3)
        self.lift = eqx.nn.Linear(in_size, hidden, key=lift_key)
        self.cell = eqx.nn.GRUCell(in_size, hidden, key=cell_key)
        readout = eqx.nn.Linear(hidden, out_size, key=readout_key)
        zeros = (jnp.zeros((out_size, hidden)), jnp.zeros(out_size))
        self.readout = eqx.tree_at(lambda m: (m.weight, m.bias), readout, zeros)

    def __call__(self, c: Float[Array, " in"]) -> Float[Array, " out"]:
        return self.readout(self.cell(c, jnp.tanh(self.lift(c))))


class Linear(eqx.Module):
    r"""The map $c \mapsto Wc + w$ with given weights.

    `eqx.nn.Linear` draws its weights with JAX, which takes longer to compile than a step to run.
    """

    weight: Float[Array, "out in"]
    bias: Float[Array, " out"]

    def __call__(self, c: Float[Array, " in"]) -> Float[Array, " out"]:
        return self.weight @ c + self.bias


class TanhConditioner(eqx.Module):
    """Two layers of tanh units and a linear read-out that is initialised to zero."""

    lift: Linear
    inner: Linear
    readout: Linear

    def __init__(self, in_size: int, hidden: int, out_size: int, *, key: PRNGKeyArray):
        rng = generator(key)
        self.lift = normal_linear(in_size, hidden, bias=0.5, rng=rng)
        self.inner = normal_linear(hidden, hidden, bias=0.1, rng=rng)
        self.readout = _linear(np.zeros((out_size, hidden)), np.zeros(out_size))

    def __call__(self, c: Float[Array, " in"]) -> Float[Array, " out"]:
        return self.readout(jnp.tanh(self.inner(jnp.tanh(self.lift(c)))))


def normal_linear(in_size: int, out_size: int, *, bias: float, rng: np.random.Generator) -> Linear:
    """Return a map with Gaussian weights of variance `1 / in_size`, and biases of size `bias`."""
    weight = rng.normal(size=(out_size, in_size)) / np.sqrt(in_size)
    return _linear(weight, bias * rng.normal(size=out_size))


def _linear(weight: np.ndarray, bias: np.ndarray) -> Linear:
    return Linear(jnp.asarray(weight), jnp.asarray(bias))


# Index of the shift among the coefficients of a component.
_SHIFT = 1
# Number of features that the networks of all components of a layer share.
SHARED = 3
# Initial size of the weights of other components and their starts.
_OTHERS = 0.15
# Arguments of products are clipped at this size. Compositions of squares would overflow far outside
# the bulk of a standard normal law, where nothing is learned.
_BULK = 10.0


class Quadratic(eqx.Module):
    """A linear combination of all monomials of degree one and two, initially zero."""

    weight: Float[Array, "out monomials"]

    def __init__(self, in_size: int, out_size: int):
        self.weight = jnp.asarray(np.zeros((out_size, in_size + in_size * (in_size + 1) // 2)))

    def __call__(self, u: Float[Array, " in"]) -> Float[Array, " out"]:
        return self.weight @ jnp.concatenate([u, _products(u)])


def _products(u: Float[Array, " in"]) -> Float[Array, " products"]:
    """Return all monomials of degree two."""
    # Products with constant matrices, because derivatives of indexing are slow scatters.
    left, right = (np.eye(len(u))[index] for index in np.triu_indices(len(u)))
    bulk = jnp.clip(u, -_BULK, _BULK)
    return (jnp.asarray(left, u.dtype) @ bulk) * (jnp.asarray(right, u.dtype) @ bulk)


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

    def __call__(self, idle: Array, context: Array) -> Float[Array, "moved outputs"]:
        """Return the coefficients of all components."""
        out = self.conditioner(jnp.concatenate([idle, context]))
        out = out.reshape(len(self.from_context), -1)
        return _shifted(out, self.from_idle(idle) + self.from_context @ context)


@dataclasses.dataclass(frozen=True)
class InputSelection:
    """Inputs of the network of each moved component.

    Entries are indices into the idle components followed by the context.
    """

    partners: Int[np.ndarray, "moved p"]  # idle components
    inputs: Int[np.ndarray, "moved n"]  # partners first


class OwnNetworks(eqx.Module):
    """A small network for each component, with inputs from a few other components.

    A single network for all components would need one unit per component to represent their
    starts, and its read-out would grow quadratically. Here the number of parameters grows linearly
    with the number of components, except for the linear path from the idle ones. A few features are
    shared by all components.
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
        input_selection: InputSelection,
        outputs: int,
        *,
        hidden: int,
        key: PRNGKeyArray,
    ):
        rng = generator(key)
        moved, seen = input_selection.inputs.shape
        self.partner_count = pairs = input_selection.partners.shape[1]
        self.inputs = jnp.asarray(input_selection.inputs)
        self.lift = normal_linear(idle_dim + context_dim, SHARED, bias=0.5, rng=rng)
        # The start of the component itself has the largest weight: with equal weights, training of
        # Beneš in four dimensions had reached t = 0.2 after 75 s, with these t = 2.6.
        weights = np.full(seen + SHARED, _OTHERS)
        weights[pairs], weights[seen:] = 1.0, 0.5
        self.inner = jnp.asarray(weights * rng.normal(size=(moved, hidden, seen + SHARED)))
        self.inner_bias = jnp.asarray(0.5 * rng.normal(size=(moved, hidden)))
        self.readout = jnp.asarray(np.zeros((moved, outputs, hidden)))
        self.readout_bias = jnp.asarray(np.zeros((moved, outputs)))
        self.straight = jnp.asarray(np.zeros((moved, seen - pairs)))
        self.from_idle = jnp.asarray(np.zeros((moved, idle_dim)))
        self.curved = jnp.asarray(np.zeros((moved, pairs * (pairs + 1) // 2)))

    def __call__(self, idle: Array, context: Array) -> Float[Array, "moved outputs"]:
        """Return the coefficients of all components."""
        both = jnp.concatenate([idle, context])
        # A matrix product, because derivatives of indexing are slow scatters.
        seen = jax.nn.one_hot(self.inputs, len(both), dtype=both.dtype) @ both
        shared = jnp.broadcast_to(jnp.tanh(self.lift(both))[None], (len(seen), SHARED))
        units = _rows(self.inner, jnp.concatenate([seen, shared], axis=1)) + self.inner_bias
        out = _rows(self.readout, jnp.tanh(units)) + self.readout_bias
        partners, others = jnp.split(seen, [self.partner_count], axis=1)
        curved = jnp.sum(self.curved * jax.vmap(_products)(partners), axis=1)
        straight = jnp.sum(self.straight * others, axis=1)
        return _shifted(out, self.from_idle @ idle + straight + curved)


def _rows(matrices: Float[Array, "moved out in"], vectors: Float[Array, "moved in"]) -> Array:
    """Return the product of each matrix with its vector, as a sum that XLA can fuse."""
    return jnp.sum(matrices * vectors[:, None, :], axis=2)


def _shifted(out: Float[Array, "moved outputs"], shift: Float[Array, " moved"]) -> Array:
    return out + shift[:, None] * jax.nn.one_hot(_SHIFT, out.shape[1], dtype=out.dtype)[None]
