"""How layers split the components, and the inputs of each component's network."""

import numpy as np
from jaxtyping import Float, Int

from ..flow.networks import InputSelection
from .settings import Settings

# Random orders from which the best is chosen.
_CANDIDATES = 64
# Idle components among the inputs of a single component's network.
_PARTNERS = 3
# Gain of separating two components that do not act on each other directly.
_UNCOUPLED = 1e-3


def idle_dim_for(dim: int, settings: Settings) -> int:
    """Return the number of components that the first layer of each pair keeps idle."""
    idle_dim = settings.idle_dim or dim // 2
    if idle_dim == 0 and settings.standardised:
        return 0  # in one dimension every layer moves the only component
    if not 0 < idle_dim < dim:
        hint = ' In one dimension use `flow="monotone"`.' if dim == 1 else ""
        raise ValueError(
            "A coupling layer keeps some components idle and moves the others; got "
            f"`idle_dim={idle_dim}` with `dim={dim}`.{hint}"
        )
    return idle_dim


def orders(
    dim: int, settings: Settings, strengths: Float[np.ndarray, "d d"] | None = None
) -> Int[np.ndarray, "blocks d"]:
    """Return the order in which each block of layers splits the components.

    With the same split in all pairs, two components on the same side never see each other
    directly, and the flow can hardly represent their coupling. Permuted orders start with that
    split, and then separate the components that were separated least often. If `strengths` of the
    couplings are given, strongly coupled components are separated first.
    """
    assert settings.layers is not None
    pairs, idle_dim = settings.layers // 2, idle_dim_for(dim, settings)
    if idle_dim == 0:
        return np.zeros((settings.layers, 1), dtype=int)
    if strengths is not None and settings.masks == "permuted":
        return _separating_orders(strengths, pairs, idle_dim)
    table = [np.arange(dim)]
    apart = _separated(table[0], idle_dim)
    rng = np.random.default_rng(0)  # the orders are part of the architecture, not of a run
    while len(table) < pairs:
        choices = [rng.permutation(dim) for _ in range(_CANDIDATES)]
        choices = [c for c in choices if _alternates(table[-1], c, idle_dim)]
        if settings.masks == "fixed" or not choices:
            choices = [table[0]]
        best = max(choices, key=lambda c: np.sum(_separated(c, idle_dim) * 0.1**apart))
        apart = apart + _separated(best, idle_dim)
        table.append(best)
    return np.stack(table)


def _separating_orders(
    strengths: Float[np.ndarray, "d d"], pairs: int, idle_dim: int
) -> Int[np.ndarray, "blocks d"]:
    """Return splits that separate coupled components that were separated least often."""
    dim = len(strengths)
    table, apart = [], np.zeros((dim, dim))
    for _ in range(pairs):
        table.append(_best_split(np.arange(dim), idle_dim, (strengths + _UNCOUPLED) * 0.1**apart))
        apart = apart + _separated(table[-1], idle_dim)
    return np.stack(table)


def _best_split(
    order: Int[np.ndarray, " d"], idle_dim: int, gains: Float[np.ndarray, "d d"]
) -> Int[np.ndarray, " d"]:
    """Return an order that no exchange of two components improves."""

    def gain(order: np.ndarray) -> float:
        return float(np.sum(_separated(order, idle_dim) * gains))

    def exchanged(i: int, j: int) -> np.ndarray:
        new = order.copy()
        new[[i, j]] = order[[j, i]]
        return new

    while True:
        pairs = [(i, j) for i in range(idle_dim) for j in range(idle_dim, len(order))]
        best = max((exchanged(i, j) for i, j in pairs), key=gain)
        if gain(best) <= gain(order) * (1 + 1e-9):
            return order
        order = best


def _separated(order: np.ndarray, idle_dim: int) -> np.ndarray:
    """Return a matrix of ones where an order separates two components, and zeros elsewhere."""
    side = np.argsort(order) < idle_dim
    return (side[:, None] != side[None, :]).astype(float)


def _alternates(before: np.ndarray, after: np.ndarray, idle_dim: int) -> bool:
    """Return `True` if two consecutive layers move different components.

    Two consecutive affine layers on the same components are equivalent to one.
    """
    return set(before[:idle_dim]) != set(after[idle_dim:])


def input_selection(
    idle: Int[np.ndarray, " idle"],
    moved: Int[np.ndarray, " moved"],
    strengths: Float[np.ndarray, "d d"],
    given: int,
    context: int,
) -> InputSelection:
    """Select the inputs of each component's network.

    These are the idle components that act on it most; the starts of these and of the component
    itself, and their means if the context has them; and everything else that is conditioned on. A
    context of `context` numbers begins with the `given` conditioning inputs, and these begin with
    the start.
    """
    dim = len(strengths)
    blocks = [0, given] if context > given else [0]
    strongest = np.argsort(-strengths[np.ix_(moved, idle)], axis=1, kind="stable")
    partners = strongest[:, : min(len(idle), _PARTNERS)]
    rows = []
    for component, places in zip(moved, partners, strict=True):
        both = np.concatenate([[component], idle[places]])
        known = np.concatenate([*(block + both for block in blocks), np.arange(dim, given)])
        rows.append(np.concatenate([places, len(idle) + known]))
    return InputSelection(partners, np.stack(rows))
