r"""The artefact of a training: the transition density for every start and every time."""

import dataclasses
import os
import weakref
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, PRNGKeyArray

from ..certify.certificate import Certificate
from ..certify.residual import Moving, moving
from ..flow.ansatz import AbstractAnsatz
from ..sde.argument_checks import checked_count, checked_key, checked_point
from ..sde.chart import Chart, plain_chart, start_coordinates
from ..sde.conditioning import ConditioningLaws
from ..sde.domains import AbstractDomain
from ..sde.laws import AbstractLaw
from ..sde.parameters import Bounds, Params
from ..sde.sde import SDE
from ..source.source_density import SourceDensity
from ..training.status import Status
from ..training.trajectory import Trajectory
from ..transition.broadcast import map_points
from ..transition.device_cache import asked
from ..transition.transition_density import (
    AbstractLastLeg,
    AbstractTransitionDensity,
    WholeWay,
    checked_query,
)
from .composed_certificate import certificate_over_legs
from .extension import extended_facts
from .guard import OUTSIDE, guard
from .last_subinterval import FromLattice, walked_starts, weighed_points
from .lattice import Lattice, weighed
from .lattice_points import lattice_for
from .provenance import Facts
from .subintervals import (
    ROUNDING,
    Beginnings,
    Course,
    Legs,
    divided,
    log_mixture,
    nodes,
    walk,
    walked,
)


class TransitionDensity(AbstractTransitionDensity):
    r"""The learned density $\rho(x | t, x_0)$ of $X(s+t)$ given $X(s) = x_0$.

    Made by `diracflow.learn` or `diracflow.load`. Positive, of unit mass, and the point mass at
    `x0` as $t\to0$, all by construction. Queries run in JAX's current precision: float32 unless
    `jax_enable_x64` is set; training always uses float64.

    Where the horizon was divided into `legs` (see `diracflow.Settings`), the flow was trained up to
    `reach`, and densities at later times are mixtures of its densities.
    """

    ansatz: AbstractAnsatz  # in the coordinates of the chart
    trajectory: Trajectory
    scope: ConditioningLaws  # of states
    chart: Chart
    lattice: Lattice | None  # of later legs, in the coordinates of the chart
    facts: Facts = eqx.field(static=True)
    dim: int = eqx.field(static=True)
    noise_dim: int = eqx.field(static=True)
    horizon: float = eqx.field(static=True)
    reach: float = eqx.field(static=True)
    legs: int = eqx.field(static=True)

    def __init__(
        self,
        ansatz: AbstractAnsatz,
        trajectory: Trajectory,
        scope: ConditioningLaws | AbstractLaw,
        facts: Facts,
        chart: Chart | None = None,
        *,
        legs: int | None = None,
        lattice: Lattice | None = None,
    ):
        # Held as NumPy arrays, float64 survives outside JAX's x64 mode.
        self.ansatz = jax.tree.map(lambda a: np.asarray(a) if eqx.is_array(a) else a, ansatz)
        self.scope = scope if isinstance(scope, ConditioningLaws) else ConditioningLaws(scope)
        self.trajectory, self.facts, self.lattice = trajectory, facts, lattice
        self.chart = plain_chart(ansatz.source.sde) if chart is None else chart
        divided = facts.settings.legs or 1
        self.legs = divided if legs is None else legs
        self.dim = ansatz.source.sde.dim
        self.noise_dim = self.legs * self.dim
        self.params = ansatz.source.sde.params
        # The square of the last clock may differ from the horizon asked for by rounding.
        finished = facts.status is Status.FINISHED
        reached = float(trajectory.clocks[-1]) ** 2
        self.reach = facts.trained_for() if finished else reached
        whole = finished and self.legs == divided
        self.horizon = facts.asked_horizon if whole else self.legs * self.reach

    @property
    def course(self) -> Course:
        """What was trained, and how times are divided."""
        return Course(self.ansatz, self.trajectory, self.reach, self.legs)

    @property
    def sde(self) -> SDE:
        """The equation whose density this is."""
        return self.chart.sde

    @property
    def domain(self) -> tuple[AbstractDomain, ...]:
        return self.chart.maps

    @property
    def starts(self) -> AbstractLaw:
        """The law of starts that the density was trained on."""
        return self.scope.starts

    @property
    def start_time(self) -> float | None:
        r"""The time $s$ of the start; `None` if the density was learned over a law of them."""
        return self.ansatz.source.start_time

    @property
    def start_time_bounds(self) -> tuple[float, float]:
        return self.scope.time_bounds

    @property
    def param_bounds(self) -> Bounds:
        return self.scope.bounds

    @property
    def status(self) -> Status:
        """How the training ended."""
        return self.facts.status

    def residual(
        self,
        x: Float[ArrayLike, "*batch d"],
        t: Float[ArrayLike, "*batch"],
        x0: Float[ArrayLike, "*batch d"],
        params: Params | None = None,
        *,
        start_time: Float[ArrayLike, "*batch"] | None = None,
    ) -> Float[Array, "*batch"]:
        r"""By how much the density fails the Fokker--Planck equation at `x`.

        That is $\partial_t q - \mathcal{A}_t[q]$ with $q$ the log-density, per unit of time.
        """
        query = checked_query(self, t, params, start_time=start_time, finite=True, x=x, x0=x0)
        self._require_one_leg("A residual", query[0])
        return _residuals(self, *query)

    def certificate(
        self,
        key: PRNGKeyArray,
        t: Float[ArrayLike, "*batch"],
        x0: Float[ArrayLike, "*batch d"],
        samples: int = 128,
        params: Params | None = None,
        *,
        start_time: Float[ArrayLike, "*batch"] | None = None,
    ) -> Certificate:
        """A bound on the total variation distance to the true transition density.

        No exact solution is needed; see the page "How far can I trust it?" for the conditions.

        **Arguments:**

        - `key`: for the samples.
        - `t`, `x0`: times and starts, which broadcast against each other.
        - `samples`: how many at each of three nodes in every step of the training, for each start;
            of later legs, for some of the places where these begin.
        - `params`, `start_time`: parameters of the SDE and times of the start, where the density
            was learned over these; they broadcast with the starts.

        **Returns:**

        `bound`, at most 1, and its standard error `stderr`, both as NumPy arrays of the broadcast
        shape. Computed in float64; what rounding adds is that of the precision JAX is set to, in
        which the density is evaluated.
        """
        key, samples = checked_key(key), checked_count("samples", samples, least=2)
        precision = float(jnp.finfo(jnp.result_type(float)).eps)
        with jax.enable_x64(True):
            checked = checked_query(self, t, params, start_time=start_time, x0=x0)
            time, start = map(np.asarray, checked)
            if not time.size or not start.size:
                shapes = f"{time.shape} and {start.shape}"
                raise ValueError(f"Give one time and one start at least; got shapes {shapes}.")
            start = np.asarray(start_coordinates(self.chart, start))
        run = (self.course, self.lattice, key)
        return certificate_over_legs(*run, time, start, samples, precision)

    def coverage(
        self,
        x0: Float[ArrayLike, "*batch d"],
        params: Params | None = None,
        start_time: Float[ArrayLike, "*batch"] | None = None,
    ) -> Float[Array, "*batch"]:
        """Share of the start law lying further out than `x0`: 1 at the centre, 0 outside.

        Starts that the law makes rare were rare in training, too; see `outside`. Parameters and
        start times count with the start; within a box all of them count alike.
        """
        start = checked_point("x0", x0, self.dim)
        return self.scope.coverage(self._joined(start, params, start_time))

    def outside(
        self,
        x0: Float[ArrayLike, "*batch d"],
        params: Params | None = None,
        start_time: Float[ArrayLike, "*batch"] | None = None,
    ) -> Bool[Array, "*batch"]:
        """Whether starts lie outside what the density was trained for, also under `jit`.

        Such are the starts beyond all but one in ten thousand of the start law, parameters and
        start times included, and under `jit` those beyond a box.
        """
        start = checked_point("x0", x0, self.dim)
        return self.scope.outside(self._joined(start, params, start_time), OUTSIDE)

    def extended(self, horizon: float) -> "TransitionDensity":
        """The same density up to a longer horizon, composed of as many legs as that takes.

        Nothing is learned: later times are mixtures over where the last leg begins (see
        `diracflow.Settings`, `legs`). Coefficients must not depend on time. The horizon is rounded
        up to whole legs. Ask its `certificate` whether starts suffice: later legs begin where
        paths have gone, which may be rare under the law of starts.
        """
        facts = extended_facts(self, horizon)
        parts = self.ansatz, self.trajectory, self.scope, facts, self.chart
        return TransitionDensity(*parts).on_lattice()

    def on_lattice(self) -> "TransitionDensity":
        """The same density with the lattice of its later legs, if it has these and there is one."""
        lattice = lattice_for(self.course, self.chart.law(self.scope.law))
        return self._again(lattice=lattice)

    def source_only(self) -> AbstractTransitionDensity:
        """The source without the flow: what one has before learning anything."""
        if self.legs == 1:
            return SourceDensity(self.ansatz.source, self.horizon, self.chart)
        theta = np.asarray(self.ansatz.theta)  # of the identity
        none = np.zeros((0, len(theta)))
        still = Trajectory(self.trajectory.clocks[-1:], theta[None], none, none)
        facts = dataclasses.replace(self.facts, history=(), certificate=(), errors=())
        return TransitionDensity(self.ansatz, still, self.scope, facts, self.chart).on_lattice()

    def with_facts(self, **changes: Any) -> "TransitionDensity":
        """The same density, knowing more of itself."""
        return self._again(facts=dataclasses.replace(self.facts, **changes))

    def save(self, path: str | os.PathLike) -> None:
        """Write the density to a file that `diracflow.load` reads."""
        from .model_file import save  # which needs this class

        save(self, path)

    def stages(
        self,
        noise: Float[ArrayLike, "n d"],
        t: float,
        x0: Float[ArrayLike, " d"],
        params: Params | None = None,
        *,
        start_time: float | None = None,
    ) -> Float[Array, "layers+1 n d"]:
        """Points of the source and their images after each layer, down to the state itself."""
        query = checked_query(self, t, params, start_time=start_time, noise=noise, x0=x0)
        time, noise, x0 = query
        if (time.ndim, noise.ndim, x0.ndim) != (0, 2, 1):
            raise ValueError(
                "Stages are those of rows of `noise` at one time from one start; got shapes "
                f"{noise.shape}, {time.shape} and {x0.shape}."
            )
        self._require_one_leg("The way through the layers", time)
        return _stages(self, time, noise, x0)

    def _again(self, **changes: Any) -> "TransitionDensity":
        """The same density with some parts changed."""
        now = {"facts": self.facts, "legs": self.legs, "lattice": self.lattice, **changes}
        return TransitionDensity(self.ansatz, self.trajectory, self.scope, chart=self.chart, **now)

    def _at_time(self, t: Float[Array, ""]) -> Legs:
        return divided(self.course, t)

    def _log_prob(
        self, state: Legs, x: Float[Array, " d"], x0: Float[Array, " d+k"]
    ) -> Float[Array, ""]:
        y, log_slope = self.chart.end(x)
        return self._log_prob_at(state, y, self.chart.start(x0)) + log_slope

    def _log_prob_at(
        self, state: Legs, y: Float[Array, " d"], start: Float[Array, " d+k"]
    ) -> Float[Array, ""]:
        """The log-density in the coordinates of the chart."""

        def one(y: Array, start: Array) -> Array:
            return state.ansatz.log_prob(y, state.length, start)

        if self.legs == 1:
            return one(y, start)
        several = lambda y, start: log_mixture(state, y, self._beginnings(state, start))
        return jax.lax.cond(state.number == 1, one, several, y, start)

    def _beginnings(self, state: Legs, start: Float[Array, " d+k"]) -> Beginnings:
        """Where the last leg begins, in the coordinates of the chart."""
        if self.lattice is None:
            return walked(state, start, nodes(self.legs, self.dim))
        return weighed(self.lattice, state, start)

    def _from_noise(
        self, state: Legs, noise: Float[Array, " d"], x0: Float[Array, " d+k"]
    ) -> Float[Array, " d"]:
        start, rows = self.chart.start(x0), noise.reshape(self.legs, self.dim)
        if self.legs == 1:
            return self.chart.from_real(state.ansatz.from_noise(noise, state.length, start))
        return self.chart.from_real(walk(state, rows, start, state.number)[: self.dim])

    def _for_times(self, t: Float[Array, "*batch"]) -> "TransitionDensity":
        """For times that are known to lie within one leg, the flow alone, which answers faster."""
        if self.legs == 1 or isinstance(t, jax.core.Tracer) or t.size == 0:
            return self
        # In NumPy: within the user's `jit` known numbers would become part of the trace.
        known = np.max(np.asarray(t))
        return _first_leg(self) if known <= self.reach * (1 + ROUNDING) else self

    def _is_composed(self, t: Float[Array, ""]) -> bool:
        known = self.legs > 1 and not isinstance(t, jax.core.Tracer)
        return known and bool(t > self.reach * (1 + ROUNDING))

    def _last_leg(
        self,
        t: Float[Array, ""],
        starts: Float[Array, "groups n d+k"],
        noise: Float[Array, "groups p m"],
    ) -> AbstractLastLeg:
        if not self._is_composed(t):
            return WholeWay(self, t, starts)
        if self.lattice is None:
            paths = jnp.repeat(starts, noise.shape[1] // starts.shape[1], axis=1)
            begins = walked_starts(self.course, self.chart, t, paths, noise)
            return WholeWay(_first_leg(self), *begins)
        weights = weighed_points(self.course, self.chart, self.lattice, t, starts)
        return FromLattice(_first_leg(self), *weights)

    def _require_one_leg(self, what: str, t: Float[Array, "*batch"]) -> None:
        if self.legs == 1 or isinstance(t, jax.core.Tracer):
            return
        if np.any(np.asarray(t) > self.reach * (1 + ROUNDING)):
            raise ValueError(
                f"{what} is that of the flow, which was trained up to t={self.reach:g}; later "
                f"times are composed of {self.legs} such legs at most. Ask within the first."
            )

    def _guard(
        self, x0: Float[Array, "*batch d"], start: Float[Array, "*batch d+k"], strict: bool
    ) -> None:
        if not isinstance(x0, jax.core.Tracer):
            asked(self, "_require_inside", x0)
        if not isinstance(start, jax.core.Tracer):
            guard(self.scope, start, strict, once_for=self.facts)
        elif not isinstance(x0, jax.core.Tracer):  # parameters are searched for, starts known
            guard(ConditioningLaws(self.starts), x0, strict, once_for=self.facts)

    def _why_horizon(self) -> str:
        longer = "see `density.extended`, which composes longer times of shorter ones."
        if self.status is Status.FINISHED or self.horizon >= self.facts.asked_horizon:
            return f" Learn it again with a longer horizon, or {longer}"
        stopped = f"Training stopped short of {self.facts.asked_horizon:g}: {self.status.value}"
        return f" {stopped} Or {longer}"


# By the identity of the density that they are the first leg of.
_FIRST_LEGS: dict[int, TransitionDensity] = {}


def _first_leg(density: TransitionDensity) -> TransitionDensity:
    """The same density up to the end of the first leg, made once: its programs are kept with it."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(density)):
        return density  # one that is being traced or differentiated
    found = _FIRST_LEGS.get(id(density))
    if found is None:
        parts = density.ansatz, density.trajectory, density.scope, density.facts, density.chart
        found = _FIRST_LEGS[id(density)] = TransitionDensity(*parts, legs=1)
        weakref.finalize(density, _FIRST_LEGS.pop, id(density), None)
    return found


def _of_one_leg(density: TransitionDensity, t: Float[Array, ""]) -> Float[Array, ""]:
    """A time within the first leg, else NaN: traced times were not looked at before."""
    if density.legs == 1:
        return t
    return jnp.where(t <= density.reach * (1 + ROUNDING), t, jnp.nan)


@eqx.filter_jit
def _residuals(density: TransitionDensity, t: Array, x: Array, x0: Array) -> Array:
    def at_time(t: Array) -> Moving:
        return moving(density.ansatz, density.trajectory, jnp.sqrt(_of_one_leg(density, t)))

    def at_point(state: Moving, x: Array, x0: Array) -> Array:
        # Relative rates are the same in states and coordinates; outside there is no density.
        y, log_slope = density.chart.end(x)
        y0 = density.chart.start(x0)
        residual = state.residual(state.ansatz.coordinates(y, state.clock, y0), y0)
        return jnp.where(log_slope > -jnp.inf, residual, jnp.nan) / (2 * state.clock)

    return map_points(at_time, at_point, t, x, x0)


@eqx.filter_jit
def _stages(density: TransitionDensity, t: Array, noise: Array, x0: Array) -> Array:
    t = _of_one_leg(density, t)
    ansatz = density._at_time(t).ansatz

    def one(noise: Float[Array, " d"]) -> Float[Array, "layers+1 d"]:
        return jax.vmap(density.chart.from_real)(ansatz.stages(noise, t, density.chart.start(x0)))

    return jax.vmap(one, out_axes=1)(noise)
