"""Build the ansatz of resolved settings: the source, and a flow that is the identity."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ..equation.moving_frame import Basis
from ..flow.affine import AffineCoupling
from ..flow.ansatz import AbstractAnsatz, RawAnsatz, StandardisedAnsatz
from ..flow.coupling_flow import AbstractFlow, Indices, Layer, MakeLayer, coupling_flow
from ..flow.monotone import MonotoneCoupling, outputs
from ..flow.networks import OwnNetworks, SharedNetwork
from ..sde.problem import Problem
from ..source.separation import couplings
from .settings import Settings
from .size_rules import Choice, basis_of, start_jacobians
from .source_rule import planned_source
from .splits import idle_dim_for, input_selection, orders

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
    problem: Problem, settings: Settings, axes: Axes, flow: AbstractFlow
) -> tuple[AbstractAnsatz, Choice]:
    """Build the ansatz; return it with the choice of its source."""
    draws, given = problem.draws(_START_DRAWS), problem.conditioning_dim
    rotation = _rotation(axes.basis, given)
    rotated = draws @ rotation.T
    # Before the source, whose errors say less clearly what is wrong with a law.
    whitening = _whitening(np.cov(rotated.T).reshape(given, given)) @ rotation
    source, choice = planned_source(problem, settings, rotated, axes.basis)
    if not settings.standardised:
        return RawAnsatz(source, flow), choice
    follows = settings.context == "path"
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
