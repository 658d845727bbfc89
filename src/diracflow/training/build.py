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

# Random orders among which the best is taken.
_CANDIDATES = 64


def build_ansatz(sde: SDE, start_time: float, settings: Settings, key: PRNGKeyArray) -> Ansatz:
    """The source and an identity flow; the hidden weights are drawn with `key`."""
    idle_dim = idle_dim_for(sde.dim, settings)

    def make_layer(idle: Int[Array, " idle"], moved: int, key: PRNGKeyArray) -> AffineCoupling:
        return AffineCoupling(
            idle, moved, sde.dim, hidden=settings.hidden, beta=settings.beta, key=key
        )

    flow = coupling_flow(make_layer, idle_dim, orders(sde.dim, settings), key=key)
    return Ansatz(EulerSource(sde, start_time), flow)


def idle_dim_for(dim: int, settings: Settings) -> int:
    """How many components the first layer of each pair keeps idle."""
    idle_dim = settings.idle_dim or dim // 2
    if not 0 < idle_dim < dim:
        hint = " In one dimension there is nothing to condition on." if dim == 1 else ""
        raise ValueError(
            "A coupling layer keeps some components idle and moves the others; got "
            f"`idle_dim={idle_dim}` with `dim={dim}`.{hint}"
        )
    return idle_dim


def orders(dim: int, settings: Settings) -> Int[Array, "pairs d"]:
    """How each pair of layers orders the components before splitting them.

    With one split for all pairs two components on the same side never see each other directly, and
    what couples them is nearly out of reach. Permuted orders start with that split and then prefer
    to separate the components that have been apart least often.
    """
    pairs, idle_dim = settings.layers // 2, idle_dim_for(dim, settings)
    table = [np.arange(dim)]
    apart = _separated(table[0], idle_dim)
    rng = np.random.default_rng(0)  # the orders are part of the architecture, not of a run
    while len(table) < pairs:
        choices = [rng.permutation(dim) for _ in range(_CANDIDATES)]
        choices = [c for c in choices if _moves_on(table[-1], c, idle_dim)]
        if settings.masks == "fixed" or not choices:
            choices = [table[0]]
        best = max(choices, key=lambda c: np.sum(_separated(c, idle_dim) * 0.1**apart))
        apart = apart + _separated(best, idle_dim)
        table.append(best)
    return jnp.asarray(np.stack(table))


def _separated(order: np.ndarray, idle_dim: int) -> np.ndarray:
    """Which two components an order puts on different sides, as a matrix of zeros and ones."""
    side = np.argsort(order) < idle_dim
    return (side[:, None] != side[None, :]).astype(float)


def _moves_on(before: np.ndarray, after: np.ndarray, idle_dim: int) -> bool:
    """Whether the first layer of a pair moves other components than the last layer before it.

    Two affine layers in a row on the same components would be one.
    """
    return set(before[:idle_dim]) != set(after[idle_dim:])
