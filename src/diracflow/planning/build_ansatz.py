"""From settings to the ansatz they describe."""

import jax.random as jr
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ..equation.moving_frame import Basis
from ..flow.affine import AffineCoupling
from ..flow.ansatz import AbstractAnsatz, RawAnsatz, StandardisedAnsatz
from ..flow.coupling_flow import Indices, Layer, MakeLayer, coupling_flow
from ..flow.monotone import MonotoneCoupling, outputs
from ..flow.networks import OwnNetworks, SharedNetwork
from ..sde.coefficient_checks import is_degenerate
from ..sde.laws import AbstractLaw
from ..sde.quasi_random import sobol
from ..sde.sde import SDE
from ..source.closure import ClosureSource
from ..source.ensemble import Ensemble, ensemble
from ..source.euler import EulerSource
from ..source.gaussian_source import AbstractGaussianSource
from ..source.moments import MomentSource, graded_basis
from ..source.rotated import RotatedSource, rotated_sde
from ..source.separation import couplings
from .basis_rule import basis_of, start_slopes
from .masks import idle_dim_for, input_selection, orders
from .settings import Settings

# Integral of the drift's slopes below which paths are taken as straight. On the sheared process in
# six dimensions, whose drift is constant, the closure source, whose width follows the growing noise
# of the ensemble, led to 4.5e-6 and 1.1e-5 (two seeds), Euler's to 1.3e-6 at most (three).
_STRAIGHT = 0.1
# Draws of the start law from which its mean and covariance are taken, and how many of them stand
# for parameters and start times in the ensemble.
_START_DRAWS, _TAILS = 1024, 32


def build_ansatz(
    sde: SDE,
    starts: AbstractLaw,
    start_time: float | None,
    horizon: float,
    settings: Settings,
    key: PRNGKeyArray,
) -> AbstractAnsatz:
    """The source and an identity flow; the hidden weights are drawn with `key`.

    `starts` is the law of all that is given: of parameters behind the start, and of the time of the
    start where `start_time` is `None`. `settings` must be sized for the dimension, and their
    context and basis settled.
    """
    given = starts.dim or sde.dim
    draws = np.asarray(starts.transport(sobol(jr.key(0), _START_DRAWS, given)))
    name = settings.source
    if name == "auto" and is_degenerate(sde, starts, start_time):
        name = "moments"
    basis, strengths = _axes(sde, starts, start_time, horizon, settings)
    turn = _turn(basis, given)
    turned = draws @ turn.T
    # Before the source, which says less clearly what is wrong with a law.
    whitening = _whitening(np.cov(turned.T).reshape(given, given)) @ turn
    equation = sde if basis is None else rotated_sde(sde, basis)
    source = _source(equation, turned, start_time, horizon, name)
    affine = settings.flow == "affine"
    layer = _monotone_layer(sde.dim, given, settings, strengths)
    flow = coupling_flow(
        _affine_layer(given, settings) if affine else layer,
        idle_dim_for(sde.dim, settings),
        orders(sde.dim, settings, strengths),
        # One component alone is scaled by its coupling already, and networks of components' own
        # have a linear path from all idle ones.
        mixing=not affine and sde.dim > 1 and strengths is None,
        key=key,
    )
    if affine:
        return RawAnsatz(source, flow)
    source = source if basis is None else RotatedSource(sde, basis, source)
    follows = settings.context == "path"
    return StandardisedAnsatz(source, flow, draws.mean(axis=0), whitening, follows)


def _axes(
    sde: SDE,
    starts: AbstractLaw,
    start_time: float | None,
    horizon: float,
    settings: Settings,
) -> tuple[Basis | None, Float[np.ndarray, "d d"] | None]:
    """Axes other than the state's, and where it matters how components along them interact."""
    own = settings.networks == "own"
    if settings.basis != "separated" and not own:
        return None, None
    at = start_slopes(sde, starts, start_time)
    basis = basis_of(settings, at)
    return basis, couplings(at, basis, horizon) if own else None


def _turn(basis: Basis | None, given: int) -> Float[np.ndarray, "d+k d+k"]:
    """What takes a start to its coordinates and leaves alone what is given beside it."""
    turn = np.eye(given)
    if basis is not None:
        dim = len(basis.inverse)
        turn[:dim, :dim] = basis.inverse
    return turn


def context_size(dim: int, given: int, settings: Settings) -> int:
    """Inputs of the flow's networks beside the state, with `given` numbers known at the start."""
    return given + dim if settings.context == "path" else given


def _whitening(covariance: np.ndarray) -> np.ndarray:
    try:
        whitening = np.linalg.inv(np.linalg.cholesky(covariance))
    except np.linalg.LinAlgError:
        whitening = np.full_like(covariance, np.nan)
    if not np.all(np.isfinite(whitening) & np.isfinite(covariance)):
        raise ValueError(
            "The start law, parameters and start times included, is too narrow, or too wide, for "
            f"float64: the variances of its draws are {np.diag(covariance).tolist()}. Measure "
            "states in other units, or take a start law that varies in every component."
        )
    return whitening


def _source(
    sde: SDE, draws: np.ndarray, start_time: float | None, horizon: float, name: str
) -> AbstractGaussianSource:
    if name in ("auto", "closure"):
        starts, tails = np.split(draws, [sde.dim], axis=1)
        mean, covariance = starts.mean(axis=0), np.cov(starts.T).reshape(sde.dim, sde.dim)
        paths = ensemble(sde, mean, covariance, start_time, horizon, tails[:_TAILS])
        if name == "auto":
            name = _best(paths, varied=tails.size > 0)
        if name == "closure":
            return ClosureSource(sde=sde, ensemble=paths, start_time=start_time)
    if name == "moments":
        return MomentSource(sde, start_time, graded_basis(sde, start_time, draws.mean(axis=0)))
    return EulerSource(sde, start_time)


def _best(paths: Ensemble, varied: bool) -> str:
    """The source that suits an ensemble; `varied` if it is one of parameters or start times."""
    if varied:
        # One width for all would be wrong for each of them; where densities split it still helps.
        return "moments" if paths.turning < _STRAIGHT else "closure"
    return "closure" if paths.bending >= _STRAIGHT else "euler"


def source_name(source: AbstractGaussianSource) -> str:
    """The setting that names a source."""
    names = {ClosureSource: "closure", MomentSource: "moments", EulerSource: "euler"}
    return names[type(source.rotated if isinstance(source, RotatedSource) else source)]


def source_reason(asked: str, source: AbstractGaussianSource, degenerate: bool) -> str:
    """Why a training took its source, given the setting."""
    name = source_name(source)
    if asked != "auto":
        return "asked for"
    if degenerate:
        return (
            "noise does not enter every component directly, so that an Euler step has no density; "
            "this source starts from the linearised covariance of each start"
        )
    reasons = {
        "moments": "parameters or start times vary, and over the horizon the drift's slopes at "
        f"different states differ by less than {_STRAIGHT}",
        "closure": f"over the horizon the slopes of the drift add up to {_STRAIGHT} or more",
        "euler": f"over the horizon the slopes of the drift add up to less than {_STRAIGHT}",
    }
    return reasons[name]


def require_fitting_source(settings: Settings, degenerate: bool) -> None:
    """Raise if the source that was asked for has no density where noise is degenerate."""
    if settings.source in ("closure", "euler") and degenerate:
        raise ValueError(
            f'`source="{settings.source}"` needs noise in every component; here the covariance '
            "`diffusion @ diffusion.T` is singular at a start, and so is that of an Euler step. "
            'Use `source="moments"`, with the preset "accurate" or "quick".'
        )


def _affine_layer(context: int, settings: Settings) -> MakeLayer:
    hidden = settings.hidden
    assert hidden is not None

    def make(idle: Indices, moved: Indices, key: PRNGKeyArray) -> Layer:
        return AffineCoupling(idle, len(moved), context, hidden=hidden, beta=settings.beta, key=key)

    return make


def _monotone_layer(
    dim: int, given: int, settings: Settings, strengths: Float[np.ndarray, "d d"] | None
) -> MakeLayer:
    hidden, context = settings.hidden, context_size(dim, given, settings)
    assert hidden is not None

    def network(idle: Indices, moved: Indices, key: PRNGKeyArray) -> SharedNetwork | OwnNetworks:
        count = outputs(settings.bumps)
        if strengths is None:
            return SharedNetwork(len(idle), len(moved), context, count, hidden=hidden, key=key)
        seen = input_selection(idle, moved, strengths, given, context)
        return OwnNetworks(len(idle), context, seen, count, hidden=hidden, key=key)

    def make(idle: Indices, moved: Indices, key: PRNGKeyArray) -> Layer:
        return MonotoneCoupling(network(idle, moved, key), settings.bumps, settings.beta)

    return make
