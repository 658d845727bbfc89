"""Build the ansatz of resolved settings: the source, and a flow that is the identity.

The layers of a flow differ in how they split the components, and in the inputs of their networks.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from ..equation.moving_frame import Basis
from ..flow.affine import AffineCoupling
from ..flow.ansatz import AbstractAnsatz, RawAnsatz, StandardisedAnsatz
from ..flow.coupling_flow import (
    AbstractFlow,
    Indices,
    Layer,
    MakeLayer,
    SkewedFlow,
    coupling_flow,
)
from ..flow.monotone import MonotoneCoupling, outputs
from ..flow.networks import InputSelection, OwnNetworks, SharedNetwork
from ..sde.problem import Problem
from ..source.separation import couplings
from .near_source import NearSource
from .settings import Settings
from .size_rules import Choice, basis_of, start_jacobians
from .source_rule import planned_source

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


# Draws of the start law from which its mean and covariance are computed.
_START_DRAWS = 1024


class Axes(NamedTuple):
    """The axes along which source and flow work."""

    basis: Basis | None  # `None` for those of the state
    couplings: Float[np.ndarray, "d d"] | None  # between components, where networks depend on them


def axes_of(problem: Problem, settings: Settings) -> Axes:
    """Return the axes of settings whose basis and networks are resolved."""
    own = settings.networks == "own"
    if settings.basis != "separated" and not own:
        return Axes(None, None)
    at = start_jacobians(problem)
    basis = basis_of(settings, at)
    return Axes(basis, couplings(at, basis, problem.horizon) if own else None)


def build_flow(problem: Problem, settings: Settings, axes: Axes, key: PRNGKeyArray) -> AbstractFlow:
    """Build the flow of settings whose sizes are resolved; hidden weights are drawn with `key`."""
    dim, given = problem.dim, problem.conditioning_dim
    context = given + dim if settings.context == "path" else given
    if isinstance(settings.flow, AbstractFlow):
        return settings.flow
    if not isinstance(settings.flow, str):
        return settings.flow(dim, context, key)
    affine = settings.flow == "affine"
    return coupling_flow(
        _layer_maker(given, context, settings, axes.couplings),
        idle_dim_for(dim, settings),
        orders(dim, settings, axes.couplings),
        # A single component is scaled by its coupling already. Networks of single components have
        # linear paths from all idle ones.
        mixing=not affine and dim > 1 and axes.couplings is None,
        key=key,
    )


def parameter_count(flow: AbstractFlow) -> int:
    """Return the number of parameters of a flow."""
    return sum(a.size for a in jax.tree.leaves(eqx.filter(flow, eqx.is_inexact_array)))


def pair_size(problem: Problem, settings: Settings, axes: Axes) -> int:
    """Return the number of parameters of one pair of layers."""
    return parameter_count(build_flow(problem, settings.replaced(layers=2), axes, jr.key(0)))


def build_ansatz(
    problem: Problem,
    settings: Settings,
    axes: Axes,
    flow: AbstractFlow,
    near: NearSource | None = None,
) -> tuple[AbstractAnsatz, Choice]:
    """Build the ansatz; return it with the choice of its source.

    `near` is the source with the moments of each start, if it was measured.
    """
    draws, given = problem.draws(_START_DRAWS), problem.conditioning_dim
    rotation = _rotation(axes.basis, given)
    rotated = draws @ rotation.T
    # Before the source, whose errors say less clearly what is wrong with a law.
    whitening = _whitening(np.cov(rotated.T).reshape(given, given)) @ rotation
    source, choice = planned_source(problem, settings, rotated, axes.basis, near)
    if not settings.standardised:
        return RawAnsatz(source, flow), choice
    follows = settings.context == "path"
    flow = SkewedFlow(flow) if source.skewed else flow
    return StandardisedAnsatz(source, flow, draws.mean(axis=0), whitening, follows), choice


def _rotation(basis: Basis | None, given: int) -> Float[np.ndarray, "d+k d+k"]:
    """Return the matrix that maps starts to the axes, and leaves the other inputs unchanged."""
    rotation = np.eye(given)
    if basis is not None:
        dim = len(basis.inverse)
        rotation[:dim, :dim] = basis.inverse
    return rotation


def _whitening(covariance: np.ndarray) -> np.ndarray:
    try:
        whitening = np.linalg.inv(np.linalg.cholesky(covariance))
    except np.linalg.LinAlgError:
        whitening = np.full_like(covariance, np.nan)
    if not np.all(np.isfinite(whitening) & np.isfinite(covariance)):
        raise ValueError(
            "The start law, parameters and start times included, is too narrow or too wide for "
            f"float64: the variances of its draws are {np.diag(covariance).tolist()}. Change the "
            "units of the states, or use a start law that varies in every component."
        )
    return whitening


def _layer_maker(
    given: int, context: int, settings: Settings, strengths: Float[np.ndarray, "d d"] | None
) -> MakeLayer:
    hidden, bumps, beta = settings.hidden, settings.bumps, settings.beta
    assert hidden is not None

    def make(idle: Indices, moved: Indices, key: PRNGKeyArray) -> Layer:
        if settings.flow == "affine":
            return AffineCoupling(idle, len(moved), given, hidden=hidden, beta=beta, key=key)
        count = outputs(bumps)
        if strengths is None:
            shared = SharedNetwork(len(idle), len(moved), context, count, hidden=hidden, key=key)
            return MonotoneCoupling(shared, bumps, beta)
        selection = input_selection(idle, moved, strengths, given, context)
        own = OwnNetworks(len(idle), context, selection, count, hidden=hidden, key=key)
        return MonotoneCoupling(own, bumps, beta)

    return make
