r"""The paper's conditional affine coupling.

Idle components are unchanged. The others are scaled and shifted by functions of the idle ones and
of the start point $x_0$:

$$v \mapsto v \odot (1 + \beta\tanh s(c)) + e^{\xi}\odot\tanh t(c),\qquad c = (u, x_0).$$

The scale lies within $1\pm\beta$ and the shift is bounded, so the layer is invertible in closed
form for any weights of the network.
"""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from .networks import GRUConditioner


class AffineCoupling(eqx.Module):
    r"""An affine map of some components, conditioned on the idle ones and on the start point.

    The functions $s$ and $t$ are two read-outs of one GRU cell. `log_reach` is $\xi$.
    """

    conditioner: GRUConditioner
    log_reach: Float[Array, " moved"]
    beta: float = eqx.field(static=True)

    def __init__(
        self,
        idle: Int[np.ndarray, " idle"],
        moved_dim: int,
        context_dim: int,
        *,
        hidden: int,
        beta: float,
        key: PRNGKeyArray,
    ):
        network_key, weights_key = jr.split(key)
        conditioner = GRUConditioner(
            len(idle) + context_dim, hidden, 2 * moved_dim, key=network_key
        )
        self.conditioner = _displacement_features(conditioner, idle, weights_key)
        self.log_reach = jnp.zeros(moved_dim)
        self.beta = beta

    def __check_init__(self) -> None:
        if not 0 < self.beta < 1:
            raise ValueError(
                "`beta` must lie in (0, 1), or the scale `1 + beta * tanh(s)` can vanish and the "
                f"layer is not invertible; got `beta={self.beta}`."
            )

    def to_source(self, moved: Array, idle: Array, context: Array) -> tuple[Array, Array]:
        scale, shift = self._coefficients(idle, context)
        return moved * scale + shift, jnp.sum(jnp.log(scale))

    def from_source(self, moved: Array, idle: Array, context: Array) -> Float[Array, " moved"]:
        scale, shift = self._coefficients(idle, context)
        return (moved - shift) / scale

    def _coefficients(self, idle: Array, context: Array) -> tuple[Array, Array]:
        s, t = jnp.split(self.conditioner(jnp.concatenate([idle, context])), 2)
        return 1 + self.beta * jnp.tanh(s), jnp.exp(self.log_reach) * jnp.tanh(t)


def _displacement_features(
    conditioner: GRUConditioner, idle: Int[np.ndarray, " idle"], key: PRNGKeyArray
) -> GRUConditioner:
    r"""Initialise the hidden units as functions of the displacement $u - x_{0,u}$ only.

    Shortly after the start the density varies on the scale of the displacement, which is much
    smaller than that of $x_0$. General features of $u$ and $x_0$ would have to cancel to that
    precision.
    """

    def displacement_weights(key: PRNGKeyArray, weight: Array) -> Float[Array, "out in"]:
        of_idle = jr.normal(key, (weight.shape[0], len(idle)))
        weights = jnp.zeros_like(weight).at[:, : len(idle)].set(of_idle)
        return weights.at[:, len(idle) + idle].set(-of_idle)

    def inputs(c: GRUConditioner) -> tuple[Array, Array]:
        return c.lift.weight, c.cell.weight_ih

    weights = [
        displacement_weights(k, w) for k, w in zip(jr.split(key), inputs(conditioner), strict=True)
    ]
    return eqx.tree_at(inputs, conditioner, tuple(weights))
