"""Settings of a training, and the presets."""

import dataclasses
import numbers
from collections.abc import Callable, Sequence
from typing import Any, Self, TypedDict

import jax
from jaxtyping import PRNGKeyArray

from ..flow.coupling_flow import AbstractFlow
from ..galerkin.velocity import Solver
from ..sde.problem import Problem
from ..sde.quasi_random import CUBES, UnitCube
from ..source.gaussian_source import AbstractGaussianSource

FLOWS = ("monotone", "affine")
METHODS = ("auto", "galerkin", "fitted", "source")
SOURCES = ("auto", "closure", "moments", "cumulants", "euler")
CONTEXTS = ("auto", "start", "path")
NETWORKS = ("auto", "shared", "own")
BASES = ("auto", "axes", "separated")
MASKS = ("fixed", "permuted")
# Settings of a training. If one of them is set, there is one.
_TRAINING = (
    *("source", "flow", "context", "basis", "networks"),
    *("legs", "layers", "hidden", "samples"),
)
# Settings for which `None` means that a rule chooses.
_CHOSEN = ("layers", "hidden", "samples", "idle_dim", "legs")
# The noise of all subintervals is drawn together, which bounds their number.
MOST_LEGS = 16

Source = str | AbstractGaussianSource | Callable[[Problem], AbstractGaussianSource]
Flow = str | AbstractFlow | Callable[[int, int, PRNGKeyArray], AbstractFlow]


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of one training. `None` and `"auto"` are resolved by rules; see `diracflow.plan`.

    **Arguments:**

    - `tolerance`: total time-integration error allowed in log p over the whole horizon (root mean
        square, in nats). Implicit steps may err by a fiftieth of what the flow leaves unexplained,
        if that is more.
    - `method`: `"galerkin"` trains a flow by Galerkin steps. `"fitted"` fits the flow, in a fixed
        number of steps, to the density that the Chapman--Kolmogorov equation makes of the one
        before; it needs coefficients that do not depend on time. `"source"` trains nothing: the
        density is a source with mean, covariance and third cumulants of each start, or, in three
        and more dimensions, composed of two of them. `"auto"` takes that in more than one
        dimension, if its distance from simulated paths (total variation) is at most twice the
        tolerance and at most 0.03. Else it takes `"fitted"` in three and more dimensions, where the
        source is `"closure"`, components do not separate, and no parameters or times vary. It takes
        `"galerkin"` if source, flow, sizes or `legs` are set. If a training stops early, the source
        is returned if its distance is at most 0.1.
    - `flow`: `"monotone"` couplings in the coordinates of the source, with linear mixing; the
        paper's `"affine"` couplings in raw coordinates; a flow object (in the coordinates of the
        source), or a function `(dim, context_dim, key) -> flow`.
    - `source`: the Gaussian that the flow starts from. `"closure"` follows restoring drifts, with
        one width for all starts, that of their ensemble. `"moments"` follows the mean and
        covariance of each start, `"cumulants"` the third cumulants as well. All are exact for
        linear SDEs. The paper's `"euler"` is one
        Euler--Maruyama step. Also a source object, or a function from a `Problem` to one. `"auto"`
        takes `"moments"` where noise does not enter every component; else `"closure"`, or
        `"euler"` if the drift Jacobian, integrated over the horizon, is below 0.1. Where
        parameters or start times vary it takes `"moments"` if the drift Jacobian differs between
        states by less than 0.1 over the horizon, else `"closure"`.
    - `context`: the inputs of the networks beside the state: the `"start"`, or with `"path"` also
        the source's mean, which moves with time. `"auto"` takes `"path"` where noise enters every
        component and the drift Jacobian rotates nearby paths by a radian or more, as on a limit
        cycle.
    - `basis`: the axes along which source and flow work: those of the state (`"axes"`), or
        `"separated"` ones, along which components interact least. `"auto"` takes the latter from
        three dimensions on, if they remove half of the squared coupling, noise enters every
        component, and networks do not receive the path.
    - `networks`: `"shared"` by all components that a layer moves, or one for each (`"own"`) with
        few inputs, so that the number of parameters grows linearly with the dimension. `"auto"`
        takes `"own"` from three dimensions on, unless networks receive the path.
    - `legs`: the number of equal subintervals of the horizon. The flow is trained for the first.
        Longer times are composed by the Chapman--Kolmogorov equation, at several hundred flow
        evaluations a point. Needs coefficients that do not depend on time. By default one, unless
        networks receive the path and the drift is not linear: then as many as keep the rotation
        within each below a radian, at most twelve (in more than two dimensions, and for families,
        two radians and four), if paths stay within the start law. If it is one by default, and in
        one or two dimensions steps become short, training ends after a sixteenth of the horizon or
        more, and the time reached becomes the length of the subintervals.
    - `layers`: the number of coupling layers; even.
    - `hidden`: the width of each network (monotone) or of the GRU cell (affine) in a layer.
    - `bumps`: the number of terms of each monotone function.
    - `beta`: in (0, 1). Affine scales lie in `1 ± beta`; monotone functions have a slope of at
        least `1 - beta`.
    - `idle_dim`: the number of components that odd layers keep fixed; half of them by default.
    - `masks`: `"fixed"` splits the components in the same way in all layers, as the paper does;
        `"permuted"` splits them differently in every pair of layers.
    - `samples`: the number of collocation points for each evaluation of the velocity.
    - `sampling`: `"sobol"` (scrambled), `"montecarlo"`, or a function `(key, samples, dim)` that
        returns points of the unit cube.
    - `solver`: `"cholesky"`, or a function `(normal_equations, regularisation, prior)` that returns
        the velocity of the parameters in explicit steps.
    - `effective_share`: points are drawn from wider laws than start law and density, with
        importance weights; this is their effective sample size as a fraction. 1 draws from the laws
        themselves.
    - `regularisation`: Tikhonov parameter, relative to the mean eigenvalue of the Gram matrix. By
        default the one with the smallest held-out residual, chosen anew in every step.
    - `momentum`: the share of the last step's velocity towards which regularisation pulls.
    - `recall`: the rate, in units of the inverse clock, at which regularisation pulls parameters
        that the points do not determine back to their initial values.
    - `allowance`: error allowed in every step whatever its length, as a share of `tolerance`. If
        infinite, `tolerance` bounds the error of each step instead of the sum.
    - `first_time`: the share of the horizon covered by the first step. In raw coordinates, the
        density is the source alone up to this time.
    - `max_steps`, `max_seconds`: training stops at these limits and keeps what it has. The second
        holds for all that `learn` does; a lattice or an error bound for which there is no time is
        left out, and can be computed later.
    """

    tolerance: float = 3e-3
    method: str = "auto"
    flow: Flow = "monotone"
    source: Source = "auto"
    context: str = "auto"
    basis: str = "auto"
    networks: str = "auto"
    legs: int | None = None
    layers: int | None = None
    hidden: int | None = None
    bumps: int = 4
    beta: float = 0.9
    idle_dim: int | None = None
    masks: str = "permuted"
    samples: int | None = None
    sampling: str | UnitCube = "sobol"
    solver: str | Solver = "cholesky"
    effective_share: float = 0.7
    regularisation: float | None = None
    momentum: float = 0.9
    recall: float = 1.0
    allowance: float = 3e-3
    first_time: float = 1e-4
    max_steps: int = 2000
    max_seconds: float = float("inf")

    def __post_init__(self) -> None:
        self._whole("layers", least=2)
        if self.layers is not None and self.layers % 2:
            raise ValueError(
                "`layers` must be even: layers come in pairs that together move every component; "
                f"got {self.layers}."
            )
        self._whole("hidden", least=1)
        self._whole("bumps", least=1)
        self._whole("samples", least=2)
        self._whole("max_steps", least=1)
        self._whole("idle_dim", least=1)
        self._whole("legs", least=1)
        if self.legs is not None and self.legs > MOST_LEGS:
            raise ValueError(f"`legs` must be at most {MOST_LEGS}; got {self.legs}.")
        self._real("beta", 0, 1)
        self._real("tolerance", 0, float("inf"))
        self._real("first_time", 0, 1)
        self._real("effective_share", 0, 1, also=1)
        if self.regularisation is not None:
            self._real("regularisation", 0, 1)
        self._real("momentum", 0, 1, also=0)
        self._real("recall", 0, float("inf"), also=0)
        for name in ("allowance", "max_seconds"):
            self._real(name, 0, float("inf"), also=float("inf"))
        _one_of("method", self.method, METHODS)
        _one_of("flow", self.flow, FLOWS, AbstractFlow)
        _one_of("source", self.source, SOURCES, AbstractGaussianSource)
        _one_of("context", self.context, CONTEXTS)
        if self.context == "path" and self.flow == "affine":
            raise ValueError('`context="path"` needs `flow="monotone"`.')
        _one_of("basis", self.basis, BASES)
        _one_of("networks", self.networks, NETWORKS)
        if self.flow == "affine" and (self.basis == "separated" or self.networks == "own"):
            raise ValueError(
                '`basis="separated"` and `networks="own"` need `flow="monotone"`; got '
                f"`basis={self.basis!r}`, `networks={self.networks!r}`."
            )
        _one_of("masks", self.masks, MASKS)
        _one_of("sampling", self.sampling, tuple(CUBES))
        _one_of("solver", self.solver, ("cholesky",))
        if self.basis == "separated" and not isinstance(self.source, str):
            raise ValueError('`basis="separated"` needs a source by name; got an object.')

    @property
    def standardised(self) -> bool:
        """`True` if the flow works in the coordinates of the source."""
        return self.flow != "affine"

    @property
    def described(self) -> list[str]:
        """The names of settings by which the user has described a training."""
        unset = (None, "auto", "monotone")
        return [name for name in _TRAINING if getattr(self, name) not in unset]

    def replaced(self, **changes: Any) -> Self:
        """Return the settings with some of them changed."""
        return dataclasses.replace(self, **changes)

    def _whole(self, name: str, *, least: int) -> None:
        value = getattr(self, name)
        if value is None and name in _CHOSEN:
            return
        if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
            raise ValueError(f"`{name}` must be a whole number, at least {least}; got {value!r}.")
        object.__setattr__(self, name, int(value))

    def _real(self, name: str, low: float, high: float, also: float | None = None) -> None:
        value = getattr(self, name)
        real = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if not real or not (low < float(value) < high or value == also):
            or_else = "" if also is None else f", or be {also}"
            raise ValueError(
                f"`{name}` must lie strictly between {low} and {high}{or_else}; got {value!r}."
            )
        object.__setattr__(self, name, float(value))


def _one_of(name: str, value: Any, choices: tuple[str, ...], kind: type | None = None) -> None:
    """Raise unless a value is one of some names, or an object where these are accepted."""
    accepts_objects = name in ("flow", "source", "sampling", "solver")
    if accepts_objects and (callable(value) or (kind is not None and isinstance(value, kind))):
        return
    if not isinstance(value, str) or value not in choices:
        objects = ", or an object; see the page on extensions" if accepts_objects else ""
        raise ValueError(f"`{name}` must be one of {', '.join(choices)}{objects}; got {value!r}.")


PRESETS = {
    "quick": Settings(tolerance=1.5e-2),
    "accurate": Settings(),
    # See docs/paper.md for what the paper leaves open.
    "paper": Settings(
        tolerance=1e-3,
        method="galerkin",
        flow="affine",
        source="euler",
        context="start",
        basis="axes",
        networks="shared",
        legs=1,
        layers=10,
        hidden=4,
        masks="fixed",
        samples=4096,
        effective_share=1.0,
        regularisation=1e-10,
        momentum=0.0,
        recall=0.0,
        allowance=float("inf"),
    ),
}


class Options(TypedDict, total=False):
    """Further keyword arguments of `learn` and `plan`: fields of `Settings`, and resources."""

    certify: bool
    memory_limit: float | None
    devices: int | Sequence[jax.Device] | None
    chunk: int | None
    tolerance: float
    method: str
    flow: Flow
    source: Source
    context: str
    basis: str
    networks: str
    legs: int | None
    layers: int | None
    hidden: int | None
    bumps: int
    beta: float
    idle_dim: int | None
    masks: str
    samples: int | None
    sampling: str | UnitCube
    solver: str | Solver
    effective_share: float
    regularisation: float | None
    momentum: float
    recall: float
    allowance: float
    first_time: float
    max_steps: int
    max_seconds: float


# Options that are no fields of `Settings`.
_BESIDE_SETTINGS = ("certify", "memory_limit", "devices", "chunk")


def settings_for(preset: str, **options: Any) -> Settings:
    """Return the settings of a preset, with those in `options` replaced."""
    _one_of("preset", preset, tuple(PRESETS))
    changes = {name: value for name, value in options.items() if name not in _BESIDE_SETTINGS}
    known = [field.name for field in dataclasses.fields(Settings)]
    unknown = sorted(set(changes) - set(known))
    if unknown:
        raise ValueError(
            f"Unknown setting {unknown[0]!r}; known are {', '.join([*_BESIDE_SETTINGS, *known])}."
        )
    return dataclasses.replace(PRESETS[preset], **changes)
