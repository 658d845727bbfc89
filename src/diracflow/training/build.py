"""From settings to the ansatz they describe."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from ..flow.affine import AffineCoupling
from ..flow.ansatz import Ansatz
from ..flow.coupling_flow import coupling_flow
from ..problem.sde import SDE
from ..source.euler import EulerSource
from .settings import Settings


def build_ansatz(sde: SDE, start_time: float, settings: Settings, key: PRNGKeyArray) -> Ansatz:
    """The source and an identity flow; the hidden weights are drawn with `key`."""
    idle_dim = settings.idle_dim or sde.dim // 2

    def make_layer(idle: Int[Array, " idle"], moved: int, key: PRNGKeyArray) -> AffineCoupling:
        return AffineCoupling(
            idle, moved, sde.dim, hidden=settings.hidden, beta=settings.beta, key=key
        )

    flow = coupling_flow(make_layer, idle_dim, orders(sde.dim, settings), key=key)
    return Ansatz(EulerSource(sde, start_time), flow)


def orders(dim: int, settings: Settings) -> Int[Array, "pairs d"]:
    """How each pair of layers orders the components before splitting them.

    With one split for all pairs two components on the same side never see each other directly, and
    what couples them is nearly out of reach. Random orders separate any two of them about every
    other time. They are drawn with a fixed seed: the order is part of the architecture.
    """
    pairs = settings.layers // 2
    if settings.masks == "fixed":
        return jnp.tile(jnp.arange(dim), (pairs, 1))
    rng = np.random.default_rng(0)
    return jnp.asarray(np.stack([rng.permutation(dim) for _ in range(pairs)]))
