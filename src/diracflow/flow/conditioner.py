"""Networks that map the inputs of a layer to its coefficients."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

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
        self.readout = _zero_linear(hidden, out_size, key=readout_key)

    def __call__(self, c: Float[Array, " in"]) -> Float[Array, " out"]:
        return self.readout(self.cell(c, jnp.tanh(self.lift(c))))


def _zero_linear(in_size: int, out_size: int, *, key: PRNGKeyArray) -> eqx.nn.Linear:
    linear = eqx.nn.Linear(in_size, out_size, key=key)
    zeros = (jnp.zeros((out_size, in_size)), jnp.zeros(out_size))
    return eqx.tree_at(lambda m: (m.weight, m.bias), linear, zeros)


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
