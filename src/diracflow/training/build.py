"""From settings to the ansatz they describe."""

import jax.random as jr
import numpy as np
from jaxtyping import Int, PRNGKeyArray

from ..flow.affine import AffineCoupling
from ..flow.ansatz import AbstractAnsatz, RawAnsatz, StandardisedAnsatz
from ..flow.coupling_flow import Layer, MakeLayer, coupling_flow
from ..flow.monotone import MonotoneCoupling
from ..galerkin.collocation import sobol
from ..problem.checks import is_degenerate
from ..problem.laws import AbstractLaw
from ..problem.sde import SDE
from ..source.closure import ClosureSource
from ..source.ensemble import Ensemble, ensemble
from ..source.euler import EulerSource
from ..source.gaussian import AbstractGaussianSource
from ..source.moments import MomentSource, graded_basis
from .settings import Settings

# Random orders among which the best is taken.
_CANDIDATES = 64
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
    context settled.
    """
    affine, context = settings.flow == "affine", starts.dim or sde.dim
    follows = settings.context == "path"
    inputs = context_size(sde.dim, context, settings)
    draws = np.asarray(starts.transport(sobol(jr.key(0), _START_DRAWS, context)))
    mean, covariance = draws.mean(axis=0), np.cov(draws.T).reshape(context, context)
    whitening, name = _whitening(covariance), settings.source
    if name == "auto" and is_degenerate(sde, starts, start_time):
        name = "moments"
    source = _source(sde, draws, start_time, horizon, name)
    flow = coupling_flow(
        _affine_layer(inputs, settings) if affine else _monotone_layer(inputs, settings),
        idle_dim_for(sde.dim, settings),
        orders(sde.dim, settings),
        # One component alone is scaled by its coupling already.
        mixing=not affine and sde.dim > 1,
        key=key,
    )
    if affine:
        return RawAnsatz(source, flow)
    return StandardisedAnsatz(source, flow, mean, whitening, follows)


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
    return names[type(source)]


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

    def make(idle: Int[np.ndarray, " idle"], moved: int, key: PRNGKeyArray) -> Layer:
        return AffineCoupling(idle, moved, context, hidden=hidden, beta=settings.beta, key=key)

    return make


def _monotone_layer(context: int, settings: Settings) -> MakeLayer:
    hidden = settings.hidden
    assert hidden is not None

    def make(idle: Int[np.ndarray, " idle"], moved: int, key: PRNGKeyArray) -> Layer:
        return MonotoneCoupling(
            len(idle),
            moved,
            context,
            hidden=hidden,
            bumps=settings.bumps,
            gamma=settings.beta,
            key=key,
        )

    return make


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


def orders(dim: int, settings: Settings) -> Int[np.ndarray, "blocks d"]:
    """How each block of layers orders the components before splitting them.

    With one split for all pairs two components on the same side never see each other directly, and
    what couples them is nearly out of reach. Permuted orders start with that split and then prefer
    to separate the components that have been apart least often.
    """
    assert settings.layers is not None
    pairs, idle_dim = settings.layers // 2, idle_dim_for(dim, settings)
    if idle_dim == 0:
        return np.zeros((settings.layers, 1), dtype=int)
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


def _separated(order: np.ndarray, idle_dim: int) -> np.ndarray:
    """Which two components an order puts on different sides, as a matrix of zeros and ones."""
    side = np.argsort(order) < idle_dim
    return (side[:, None] != side[None, :]).astype(float)


def _moves_on(before: np.ndarray, after: np.ndarray, idle_dim: int) -> bool:
    """Whether the first layer of a pair moves other components than the last layer before it.

    Two affine layers in a row on the same components would be one.
    """
    return set(before[:idle_dim]) != set(after[idle_dim:])
