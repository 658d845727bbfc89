r"""Networks that turn the conditioning vector of a layer into the layer's coefficients."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray


class GRUConditioner(eqx.Module):
    r"""One GRU cell between two linear maps.

    The state $h_0 = \tanh(Wc + w)$ is updated once by a GRU cell with input $c$, and the result is
    read out linearly. A cell started from $h = 0$ instead would never use its recurrent weights.
    The read-out starts at zero, hence so does the output, whatever the input.
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


class TanhConditioner(eqx.Module):
    """Two layers of tanh units and a linear read-out that starts at zero."""

    lift: eqx.nn.Linear
    inner: eqx.nn.Linear
    readout: eqx.nn.Linear

    def __init__(self, in_size: int, hidden: int, out_size: int, *, key: PRNGKeyArray):
        lift_key, inner_key, readout_key = jr.split(key, 3)
        self.lift = _normal_linear(in_size, hidden, bias=0.5, key=lift_key)
        self.inner = _normal_linear(hidden, hidden, bias=0.1, key=inner_key)
        self.readout = _zero_linear(hidden, out_size, key=readout_key)

    def __call__(self, c: Float[Array, " in"]) -> Float[Array, " out"]:
        return self.readout(jnp.tanh(self.inner(jnp.tanh(self.lift(c)))))


def _normal_linear(in_size: int, out_size: int, *, bias: float, key: PRNGKeyArray) -> eqx.nn.Linear:
    """Gaussian weights that keep the size of standardised inputs, and spread biases."""
    linear = eqx.nn.Linear(in_size, out_size, key=key)
    weight_key, bias_key = jr.split(key)
    weight = jr.normal(weight_key, (out_size, in_size)) / jnp.sqrt(in_size)
    values = (weight, bias * jr.normal(bias_key, (out_size,)))
    return eqx.tree_at(lambda m: (m.weight, m.bias), linear, values)
