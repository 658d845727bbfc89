"""What a user may set about a training, and the presets."""

import dataclasses
import numbers
from typing import Any

from ..sde.quasi_random import CUBES

# Flows, and the coordinates they act in; see `build`.
FLOWS = ("monotone", "affine")
# Gaussians that the flow starts from; see the room `source`.
SOURCES = ("auto", "closure", "moments", "euler")
# What a flow's networks are given beside the state; see `contexts`.
CONTEXTS = ("auto", "start", "path")
# Who shares the networks of a layer; see `flow.networks`.
NETWORKS = ("auto", "shared", "own")
# Axes along which sources and flows work; see `bases`.
BASES = ("auto", "axes", "separated")
# Ways to order the components before each block of layers; see `build.orders`.
MASKS = ("fixed", "permuted")
# Settings that `None` leaves to the problem.
_FILLED_IN = ("layers", "hidden", "samples", "idle_dim", "legs")
# Legs beyond which a horizon is not divided: the noise of all of them is drawn together.
MOST_LEGS = 16


@dataclasses.dataclass(frozen=True)
class Settings:
    """Typed settings of one training. `None` means: chosen from dimension and tolerance.

    **Arguments:**

    - `tolerance`: the budget for the error of the log-density from stepping in time, in nats, root
        mean square, over the whole horizon. Implicit steps may err by a fiftieth of what the flow
        leaves over in them, if that is more.
    - `flow`: `"monotone"` couplings in standardised coordinates with linear mixing, or the paper's
        `"affine"` couplings in raw coordinates.
    - `source`: `"closure"` follows restoring drifts with one width for all starts, as wide as their
        ensemble; `"moments"` follows each start's own mean and covariance, for densities that stay
        in one piece, as on a limit cycle. Both are exact for linear equations. The paper's
        `"euler"` is one Euler--Maruyama step. `"auto"` takes `"moments"` where noise does not enter
        every component, for no other source has a density then; else `"closure"`, unless the slopes
        of the drift, over the horizon, add up to less than 0.1: then paths neither converge nor
        part, and it takes `"euler"`. Where parameters or start times vary it takes `"moments"` for
        drifts that are linear in the state, or nearly so (differences of their slopes at different
        states, over the horizon, add up to less than 0.1), and `"closure"` for others.
    - `context`: what the flow's networks are given beside the state: the `"start"`, or with
        `"path"` the source's mean as well, which moves with time. `"auto"` takes `"path"` where
        noise enters every component and the slopes of the drift at the starts turn neighbouring
        paths by a radian or more over the horizon, as on a limit cycle.
    - `basis`: the axes along which source and flow work: those of the state (`"axes"`), or
        `"separated"` ones along which components act on each other as little as possible. `"auto"`
        takes the latter from three dimensions on where they leave less than half of what varies of
        the drift's slopes off the diagonal, squared, noise enters every component, and networks are
        not given the path.
    - `networks`: `"shared"` by all components that a layer moves, or each with its `"own"`, which
        looks at few others, so that parameters grow with the dimension and not with its square.
        `"auto"` takes `"own"` from three dimensions on, unless networks are given the path.
    - `legs`: equal parts of the horizon, of which the flow is trained for the first; longer times
        are composed of it, as mixtures over where the last leg begins, which takes as many
        evaluations of the flow as there are points in them: in one and two dimensions those of a
        lattice, some hundred, if these suffice, else 256 for two legs, 1024 for four and 4096 for
        more. Needs coefficients that do not depend on time. By default one leg; where networks are
        given the path and the drift is not linear, as many as keep a leg from turning paths by more
        than a radian, at most twelve (in more dimensions and for families two radians and four), if
        paths stay where starts are trained for: later legs begin there.
    - `layers`: number of coupling layers, even.
    - `hidden`: width of the network, or of each (monotone), or of the GRU cell (affine) in each
        layer.
    - `bumps`: terms of each monotone function.
    - `beta`: bound of what a layer may take off a slope: affine scales lie within `1 ± beta`, and
        the bumps of a monotone function leave at least `1 - beta`.
    - `idle_dim`: components kept idle by the odd layers; half of them by default.
    - `masks`: `"fixed"` splits the components the same way in all layers, as the paper does;
        `"permuted"` lets every pair of layers split them differently.
    - `samples`: collocation points for each evaluation of the velocity.
    - `sampling`: `"sobol"` (scrambled) or `"montecarlo"`.
    - `effective_share`: points reach further out than start law and density do, until the weights
        that make up for it leave this share of them effective; 1 draws from the laws themselves.
    - `regularisation`: Tikhonov parameter relative to the mean eigenvalue of the Gram matrix;
        by default the one with the smallest residual on fresh points, step by step. The first step
        and implicit ones take more where they need it.
    - `momentum`: the share of the last step's velocity that regularisation pulls towards.
    - `recall`: the rate, in units of one over the clock, at which regularisation pulls parameters
        that the points do not determine back to their initial values.
    - `allowance`: what a step may err whatever its length, as a share of `tolerance`; if infinite,
        `tolerance` bounds the error of each step rather than their sum.
    - `first_time`: share of the horizon covered by the first step; in raw coordinates, the share
        up to which the source alone is the density.
    - `max_steps`, `max_seconds`: limits after which training stops with what it has.
    """

    tolerance: float = 3e-3
    flow: str = "monotone"
    source: str = "auto"
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
    sampling: str = "sobol"
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
        _one_of("flow", self.flow, FLOWS)
        _one_of("source", self.source, SOURCES)
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

    def _whole(self, name: str, *, least: int) -> None:
        value = getattr(self, name)
        if value is None and name in _FILLED_IN:
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


def _one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"`{name}` must be one of {', '.join(choices)}; got {value!r}.")


PRESETS = {
    "quick": Settings(tolerance=1.5e-2),
    "accurate": Settings(),
    # What the paper leaves open is documented in docs/method.md.
    "paper": Settings(
        tolerance=1e-3,
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


def settings_for(preset: str, **changes: Any) -> Settings:
    """The settings of a preset with some of them changed."""
    _one_of("preset", preset, tuple(PRESETS))
    known = [field.name for field in dataclasses.fields(Settings)]
    unknown = sorted(set(changes) - set(known))
    if unknown:
        raise ValueError(f"Unknown setting {unknown[0]!r}; there are {', '.join(known)}.")
    return dataclasses.replace(PRESETS[preset], **changes)
