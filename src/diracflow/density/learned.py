r"""The learned transition density, for every start and every time."""

import copy
import dataclasses
import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float

from ..certify.certificate import Certificate, CertificateQuery, Estimate, certificate
from ..certify.estimate import estimates
from ..flow.ansatz import AbstractAnsatz
from ..planning.settings import MOST_LEGS
from ..sde.argument_checks import checked_number
from ..sde.chart import Chart, plain_chart
from ..sde.conditioning import OUTSIDE, ConditioningLaws
from ..sde.delegation import delegated
from ..sde.domains import require_inside
from ..sde.laws import AbstractLaw
from ..sde.problem import Problem
from ..sde.sde import SDE
from ..source.gaussian_source import SourceDensity
from ..training.state import Status, Trajectory
from ..transition.transition_density import AbstractTransitionDensity
from .abstract_learned import AbstractLearnedDensity, Provenance
from .composed import ComposedDensity
from .guard import guard, known_inside, tell_of_float32
from .known_frames import framed
from .subintervals import division

# Endings of a training after which there may be no density at later times.
_NOTHING_THERE = (Status.EXPLODING, Status.NOT_FINITE)
# Share of the time that a failed training reached up to which it is used.
_SOUND = 0.8


class AnsatzAtTime(NamedTuple):
    """The ansatz with its parameters at one time."""

    ansatz: AbstractAnsatz
    t: Float[Array, ""]


class TransitionDensity(AbstractLearnedDensity):
    r"""The learned density $\rho(x | t, x_0)$ of $X(s+t)$ given $X(s) = x_0$.

    Made by `diracflow.learn` or `diracflow.load`. By construction it is positive, has unit mass,
    and tends to the point mass at `x0` as $t\to0$. Queries run in JAX's current precision: float32
    unless `jax_enable_x64` is set; training always uses float64. A `PrecisionWarning` says so once.

    `horizon` is the time up to which the flow was trained. Longer times: see `extended`.
    """

    ansatz: AbstractAnsatz  # in the coordinates of the chart
    trajectory: Trajectory
    scope: ConditioningLaws  # of states
    chart: Chart
    provenance: Provenance = eqx.field(static=True)
    dim: int = eqx.field(static=True)
    noise_dim: int = eqx.field(static=True)
    horizon: float = eqx.field(static=True)

    def __init__(
        self,
        ansatz: AbstractAnsatz,
        trajectory: Trajectory,
        scope: ConditioningLaws | AbstractLaw,
        provenance: Provenance,
        chart: Chart | None = None,
    ):
        # Held as NumPy arrays, float64 survives outside JAX's x64 mode.
        self.ansatz = jax.tree.map(lambda a: np.asarray(a) if eqx.is_array(a) else a, ansatz)
        self.scope = scope if isinstance(scope, ConditioningLaws) else ConditioningLaws(scope)
        self.trajectory, self.provenance = trajectory, provenance
        self.chart = plain_chart(ansatz.source.sde) if chart is None else chart
        self.dim = self.noise_dim = ansatz.source.sde.dim
        self.params = ansatz.source.sde.params
        # The square of the last clock may differ from the intended time by rounding.
        finished = provenance.status is Status.FINISHED
        self.horizon = provenance.plan.reach if finished else float(trajectory.clocks[-1]) ** 2

    @property
    def reach(self) -> float:
        """The time that the flow was trained for: the horizon."""
        return self.horizon

    @property
    def sde(self) -> SDE:
        """The SDE."""
        return self.chart.sde

    domain = delegated("chart.maps")
    start_time_bounds = delegated("scope.time_bounds")
    param_bounds = delegated("scope.bounds")

    @functools.cached_property  # read in every query
    def start_time(self) -> float | None:
        r"""The time $s$ of the start; `None` if the density was learned over a law of it."""
        return self.ansatz.source.start_time

    def extended(self, horizon: float) -> "LearnedDensity":
        """Return this density up to a longer horizon, composed of several subintervals.

        Nothing is learned; see `ComposedDensity`. Coefficients must not depend on time. Later
        subintervals begin where paths have gone, which may be rare under the law of starts: compute
        the `certificate` of the result.

        **Arguments:**

        - `horizon`: the longest time, rounded up to whole subintervals.
        """
        longest = extended_horizon(self, horizon)
        if longest <= self.horizon:
            return self
        # These were computed up to the shorter horizon.
        base = self.with_provenance(certificate=(), errors=())
        return ComposedDensity(base, longest, starts=self.scope.law)

    def composed(self) -> "LearnedDensity":
        """Return the density up to the horizon of its plan, composed if `legs` exceeds one."""
        plan = self.provenance.plan
        if plan.legs == 1 or self.horizon == 0:
            return self
        finished = self.status is Status.FINISHED
        horizon = plan.horizon if finished else plan.legs * self.horizon
        return ComposedDensity(self, horizon, starts=self.scope.law)

    def reaching(self, horizon: float) -> "LearnedDensity":
        """Return a density up to the horizon, if a stopped training has learned enough for it.

        Subintervals end well before the time that was reached: the flow may be wrong at the last
        steps. If there would be too many, or coefficients depend on time, the result is `self`.
        """
        if self.horizon <= 0 or self.status in _NOTHING_THERE:
            return self
        legs = int(np.ceil(horizon / (_SOUND * self.horizon)))
        if legs > MOST_LEGS:
            return self
        try:
            extended_horizon(self, horizon)
        except ValueError:
            return self
        return ComposedDensity(self, horizon, reach=horizon / legs, starts=self.scope.law)

    def source_only(self) -> AbstractTransitionDensity:
        """Return the density of the source, without the flow, as a baseline."""
        return SourceDensity(self.ansatz.source, self.horizon, self.chart)

    def with_provenance(self, **changes: Any) -> "TransitionDensity":
        """Return the same density with changed fields of `provenance`."""
        provenance = dataclasses.replace(self.provenance, **changes)
        return TransitionDensity(self.ansatz, self.trajectory, self.scope, provenance, self.chart)

    def _without_provenance(self) -> "TransitionDensity":
        bare = copy.copy(self)
        object.__setattr__(bare, "provenance", None)
        return bare

    _prepared = framed  # not a method that calls it: one function less in every query

    def _trained(self, what: str, t: Float[ArrayLike, "*batch"]) -> "TransitionDensity":
        return self

    def _error_bound(self, query: CertificateQuery) -> Certificate:
        return certificate(self.ansatz, self.trajectory, query)

    def _error_estimate(self, query: CertificateQuery) -> Estimate:
        return estimates(self.ansatz, self.trajectory, query)

    def _at_time(self, t: Float[Array, ""]) -> AnsatzAtTime:
        return AnsatzAtTime(self.ansatz.at(self.trajectory(t)), t)

    def _log_prob(
        self, state: AnsatzAtTime, x: Float[Array, " d"], x0: Float[Array, " d+k"]
    ) -> Float[Array, ""]:
        y, log_slope = self.chart.end(x)
        return state.ansatz.log_prob(y, state.t, self.chart.start(x0)) + log_slope

    def _from_noise(
        self, state: AnsatzAtTime, noise: Float[Array, " d"], x0: Float[Array, " d+k"]
    ) -> Float[Array, " d"]:
        return self.chart.from_real(state.ansatz.from_noise(noise, state.t, self.chart.start(x0)))

    def _check_starts(
        self, x0: Float[Array, "*batch d"], start: Float[Array, "*batch d+k"], strict: bool
    ) -> None:
        if x0.dtype == np.float32:
            tell_of_float32()
        if isinstance(x0, jax.core.Tracer):
            return
        # Parameters may be traced in a search for them, while starts are known.
        whole = not isinstance(start, jax.core.Tracer)
        known = start if whole else x0
        if not known_inside(known, self.provenance):
            require_inside(self.domain, x0)
            guard(
                self.scope if whole else ConditioningLaws(self.starts),
                known,
                strict,
                once_for=self.provenance,
            )

    def _outside(self, start: Float[Array, "*batch d+k"]) -> Bool[Array, "*batch"]:
        return self.scope.outside(start, OUTSIDE)

    def _why_horizon(self) -> str:
        longer = "see `density.extended`, which composes longer times of shorter ones."
        if self.status is Status.FINISHED or self.horizon >= self.provenance.plan.horizon:
            return f" Learn it again with a longer horizon, or {longer}"
        stopped = f"Training stopped short of {self.provenance.plan.horizon:g}: {self.status.value}"
        return f" {stopped} Or {longer}"


LearnedDensity = TransitionDensity | ComposedDensity


def extended_horizon(density: TransitionDensity, horizon: float) -> float:
    """Return a horizon rounded up to whole subintervals; raise if it cannot be composed."""
    wanted, reach = checked_number("horizon", horizon), density.horizon
    if wanted <= 0 or reach == 0:
        raise ValueError(
            f"`horizon` must be positive, and the density must have been learned up to a positive "
            f"time; got {wanted:g}, and a density up to {reach:g}."
        )
    longest = division(wanted, reach).most * reach
    chart = plain_chart(density.sde)
    problem = Problem(density.sde, density.scope, density.start_time, longest, chart)
    with jax.enable_x64(True):
        autonomous = problem.autonomous
    if not autonomous:
        raise ValueError(
            "Only densities whose coefficients do not depend on time, and of one start time, can "
            "be extended: later subintervals start when earlier ones end. Learn it again with the "
            "longer horizon."
        )
    return longest


def extension_text(density: LearnedDensity) -> str:
    """Return the hint that a stopped training can be extended, if that is so."""
    wanted = density.provenance.plan.horizon
    if density.horizon == 0 or density.status in _NOTHING_THERE:
        return ""
    base: Any = density.base if isinstance(density, ComposedDensity) else density
    try:
        extended_horizon(base, wanted)
    except ValueError:
        return ""
    return (
        f" Its `extended({wanted:g})` composes the rest from what was learned; queries then cost "
        "more. Check the `certificate` of the result."
    )
