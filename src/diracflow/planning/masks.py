"""How layers split the components, and which of them each component looks at."""

import numpy as np
from jaxtyping import Float, Int

from ..flow.networks import InputSelection
from .settings import Settings

# Random orders among which the best is taken.
_CANDIDATES = 64
# Idle components that a network of a component's own looks at.
_PARTNERS = 3
# How much it counts to part components that do not act on each other directly.
_STRANGERS = 1e-3


def idle_dim_for(dim: int, settings: Settings) -> int:
    """How many components the first layer of each pair keeps idle."""
    idle_dim = settings.idle_dim or dim // 2
    if idle_dim == 0 and settings.flow == "monotone":
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
    """How each block of layers orders the components before splitting them.

    With one split for all pairs two components on the same side never see each other directly, and
    what couples them is nearly out of reach. Permuted orders start with that split and then prefer
    to separate the components that have been apart least often. Where `strengths` say how much they
    act on each other, those that do so most come apart first.
    """
    assert settings.layers is not None
    pairs, idle_dim = settings.layers // 2, idle_dim_for(dim, settings)
    if idle_dim == 0:
        return np.zeros((settings.layers, 1), dtype=int)
    if strengths is not None and settings.masks == "permuted":
        return _parting_orders(strengths, pairs, idle_dim)
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
    return np.stack(table)


def _parting_orders(
    strengths: Float[np.ndarray, "d d"], pairs: int, idle_dim: int
) -> Int[np.ndarray, "blocks d"]:
    """Splits that part what acts on each other, and has been apart least often."""
    dim = len(strengths)
    table, apart = [], np.zeros((dim, dim))
    for _ in range(pairs):
        table.append(_parting(np.arange(dim), idle_dim, (strengths + _STRANGERS) * 0.1**apart))
        apart = apart + _separated(table[-1], idle_dim)
    return np.stack(table)


def _parting(
    order: Int[np.ndarray, " d"], idle_dim: int, gains: Float[np.ndarray, "d d"]
) -> Int[np.ndarray, " d"]:
    """An order from which no exchange of two components parts more."""

    def parted(order: np.ndarray) -> float:
        return float(np.sum(_separated(order, idle_dim) * gains))

    def exchanged(i: int, j: int) -> np.ndarray:
        new = order.copy()
        new[[i, j]] = order[[j, i]]
        return new

    while True:
        pairs = [(i, j) for i in range(idle_dim) for j in range(idle_dim, len(order))]
        best = max((exchanged(i, j) for i, j in pairs), key=parted)
        if parted(best) <= parted(order) * (1 + 1e-9):
            return order
        order = best


def _separated(order: np.ndarray, idle_dim: int) -> np.ndarray:
    """Which two components an order puts on different sides, as a matrix of zeros and ones."""
    side = np.argsort(order) < idle_dim
    return (side[:, None] != side[None, :]).astype(float)


def _moves_on(before: np.ndarray, after: np.ndarray, idle_dim: int) -> bool:
    """Whether the first layer of a pair moves other components than the last layer before it.

    Two affine layers in a row on the same components would be one.
    """
    return set(before[:idle_dim]) != set(after[idle_dim:])


def partner_count(idle_dim: int) -> int:
    """How many idle components a network of a component's own looks at."""
    return min(idle_dim, _PARTNERS)


def input_selection(
    idle: Int[np.ndarray, " idle"],
    moved: Int[np.ndarray, " moved"],
    strengths: Float[np.ndarray, "d d"],
    given: int,
    context: int,
) -> InputSelection:
    """What components look at: the idle ones that act on them most, and what is known of both.

    That is their starts, and their means if the context has them; and all that is given beside the
    start. A context of `context` numbers has the `given` ones first, starts at their head.
    """
    dim = len(strengths)
    blocks = [0, given] if context > given else [0]
    strongest = np.argsort(-strengths[np.ix_(moved, idle)], axis=1, kind="stable")
    partners = strongest[:, : partner_count(len(idle))]
    rows = []
    for component, places in zip(moved, partners, strict=True):
        both = np.concatenate([[component], idle[places]])
        known = np.concatenate([*(block + both for block in blocks), np.arange(dim, given)])
        rows.append(np.concatenate([places, len(idle) + known]))
    return InputSelection(partners, np.stack(rows))
