r"""Explicit time steps of the parameters, as in the paper, and the switch to implicit ones.

The method is the Bogacki--Shampine pair, of order three with an embedded error estimate. The error
is measured by its effect on the density: for a change $e$ of the parameters, $\sqrt{e^\top G e}$ is
the root mean square change of the log-density in nats, where $G$ is the Gram (Fisher) matrix. This
norm does not depend on the parametrisation of the flow.

An explicit step costs less than an implicit one, and follows the parameters most closely. Where
explicit steps become too short to reach the horizon, as where the density of a double well splits,
implicit steps take over: they are longer, with the regularisation that their iterations need to
converge. No steps are made where the source is exact.
"""

import dataclasses
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..galerkin.collocation import Draws, Points
from ..galerkin.rows import source_forcings
from ..galerkin.velocity import ROUNDING, Velocity, survey, velocity
from ..planning.prepare import Prepared
from ..planning.settings import MOST_LEGS
from ..planning.size_rules import samples_rule
from ..planning.subinterval_rule import bends, divisible
from ..planning.widening import stays
from .implicit_loop import ImplicitLoop
from .loop import MOST_CHANGE, SMALLEST, TimeLoop, diagnostics_of
from .state import Diagnostics, Status, diagnosis

# Sums of a few vectors stay in NumPy, because compiling them gains nothing.
Parameters = Float[np.ndarray, " m"]
VectorField = Callable[[Parameters, float], Velocity]


class Step(eqx.Module):
    """Parameters and velocity at the end of a step."""

    theta: Parameters
    end: Velocity
    error: float  # estimated, in nats


def bogacki_shampine(
    field: VectorField, theta: Parameters, clock: float, length: float, start: Velocity
) -> Step:
    """Take one step of a given length, from `theta` and `clock` with the velocity `start`."""

    def rate(theta: Parameters, clock: float) -> Parameters:
        return np.asarray(field(theta, clock).theta_dot)

    k1 = np.asarray(start.theta_dot)
    k2 = rate(theta + length * k1 / 2, clock + length / 2)
    k3 = rate(theta + 3 * length * k2 / 4, clock + 3 * length / 4)
    new = theta + length * (2 * k1 / 9 + k2 / 3 + 4 * k3 / 9)
    end = field(new, clock + length)
    error = length * (-5 * k1 / 72 + k2 / 12 + k3 / 9 - np.asarray(end.theta_dot) / 8)
    return Step(new, end, float(fisher_norm(error, start.normal.gram)))


@eqx.filter_jit
def fisher_norm(
    change: Float[Array | np.ndarray, " m"], gram: Float[Array, "m m"]
) -> Float[Array, ""]:
    """Return the root mean square change of the log-density for a small change of parameters."""
    return jnp.sqrt(jnp.maximum(change @ gram @ change, 0.0))


class ExplicitLoop(TimeLoop):
    """A loop of Bogacki--Shampine steps."""

    CARRIED = (*TimeLoop.CARRIED, "candidates")
    # Velocities at the end of the last step, one for each candidate of the regularisation.
    candidates: np.ndarray | None = None

    def advance(self) -> Status:
        return self.explicit_step()

    def explicit_step(self) -> Status:
        """Make one accepted step."""
        field = self.field(self.draw())
        start = field(self.theta, self.clock)
        if not _finite(start.theta_dot):
            return Status.NOT_FINITE
        rejected = 0
        longest = MOST_CHANGE / max(float(start.forcing), 1e-300)
        while True:
            length = min(self.length, self.end - self.clock, longest)
            (length,) = self.processes.agree(length)
            step = bogacki_shampine(field, self.theta, self.clock, length, start)
            step = dataclasses.replace(step, error=self.processes.agree(step.error)[0])
            if step.error <= self.allowed_error(length) and _finite(step.end.theta_dot):
                self.accept(step, start, length, rejected)
                return Status.FINISHED
            rejected += 1
            # NaN fails the comparison above and gives no estimate of the next length.
            finite = np.isfinite(step.error)
            shorter = self.next_length(length, step.error) if finite else 0.2 * length
            self.length = min(shorter, 0.7 * length)
            if self.length < SMALLEST * self.end:
                return diagnosis(self.history) if finite else Status.NOT_FINITE
            if self.out_of_time():
                return Status.TIME_LIMIT

    def accept(self, step: Step, start: Velocity, length: float, rejected: int) -> None:
        """Move to the end of a step and prepare the next."""
        forcing = float(start.forcing)
        residuals = np.asarray(start.held_out_residuals)
        held_out = self.regularisation.choose(residuals, self.good_enough(forcing))
        prior = jnp.asarray(self.prior())
        strengths = jnp.asarray(self.regularisation.candidates())
        surveyed = survey(step.end.normal, strengths, prior)
        self.candidates = np.asarray(surveyed.candidates)
        self.velocity = np.asarray(step.end.theta_dot)
        self.move(step.theta, length, (np.asarray(start.theta_dot), self.velocity))
        self.length = self.next_length(length, step.error)
        found = diagnostics_of(float(start.residual), held_out, surveyed)
        sizes = {"error": step.error, "source_gap": float(start.source_gap), "rejected": rejected}
        self.record(length, forcing, found, regularisation=self.regularisation.value, **sizes)

    def field(self, draws: Draws) -> VectorField:
        """Return the velocity of the parameters, with fixed draws."""
        carried = self._carried()
        frozen = self.place(self.theta, self.clock, draws)

        def field(theta: Parameters, clock: float) -> Velocity:
            points = frozen
            if not self.ansatz.standardised:  # raw coordinates: points move with the density
                points = self.place(theta, clock, draws)
            at = jnp.asarray(theta), jnp.asarray(clock)
            found = velocity(self.ansatz, *at, points, *carried)
            if self.negligible(float(found.forcing)):
                return eqx.tree_at(lambda v: v.theta_dot, found, jnp.zeros_like(found.theta_dot))
            return found

        return field

    def compilation(self) -> Callable[[], object]:
        """Return a function that compiles the velocity, for another thread, without running it.

        Two programs that run at the same time can deadlock on XLA's threads, as they did in twenty
        dimensions.
        """
        points = self.place(self.theta, self.clock, self.draw())
        theta, clock = jnp.asarray(self.theta), jnp.asarray(self.length)
        framed = velocity.with_frames(self.ansatz, theta, clock, points)
        arguments = (*framed, *self._carried())

        def compile_velocity() -> object:
            with jax.enable_x64(True):  # the setting is per thread
                return velocity.program.lower(*arguments).compile()

        return compile_velocity

    def _carried(self) -> tuple[Any, ...]:
        """Return regularisation, prior and candidates of earlier steps, and the user's solver."""
        candidates = self.candidates
        if candidates is None:
            candidates = np.zeros((len(self.regularisation.candidates()), len(self.theta)))
        strength, prior = jnp.asarray(self.regularisation.value), jnp.asarray(self.prior())
        solver = self.settings.solver if callable(self.settings.solver) else None
        return strength, prior, jnp.asarray(candidates), solver


def _finite(theta_dot: Array) -> bool:
    return bool(np.all(np.isfinite(theta_dot)))


# Clocks at which the source is tested. The certificate evaluates three times between any two.
_SOURCE_TESTS = 24
# Explicit steps are used while the expected total number of steps is below `_FEW`, or their cost
# below `_AFFORDABLE` operations, which is about 200 steps in two dimensions. (Beneš takes 150. On a
# double well in the plane the expected number of remaining steps does not decrease.) An implicit
# step differentiates all scores in every dimension, an explicit one does not: on Beneš in ten
# dimensions 25 s against 4 s. So above four dimensions `_FEW` is proportional to the dimension.
_FEW, _AFFORDABLE = 100, 4e11
# Near the start, up to this fraction of the clock, steps are short for every equation.
_EARLY = 0.03
# Number of consecutive short steps after which explicit steps end.
_PATIENCE = 10


# A looser tolerance has to pay: what is affordable decreases with it as the number of steps does.
# Beneš takes 47 steps at five times the tolerance of `accurate`, 150 at that.
_TOLERANCE, _PER_TOLERANCE = 3e-3, 0.7
# Costs, in units of what is affordable, at which a training that nobody asked for in particular
# ends: if there is a source to return instead, and otherwise. On two cores the latter is about a
# quarter of an hour for `quick`, three times that for `accurate`.
_INSTEAD, _HOPELESS = 5.0, 30.0


def costs(steps: float, points: int, parameters: int, tolerance: float) -> tuple[float, float]:
    """Return the operations of explicit steps, as they count in two decisions.

    The first decides about implicit steps. They are less accurate, so they are no answer to a
    tolerance below that of `accurate`. The second decides whether a training should end.
    """
    cost, looser = steps * points * parameters**2, tolerance / _TOLERANCE
    return cost * min(looser, 1.0) ** _PER_TOLERANCE, cost * looser**_PER_TOLERANCE


class SwitchingLoop(ExplicitLoop, ImplicitLoop):
    """A loop of explicit steps that ends, or switches to implicit ones, where they become short.

    It ends if the rest of the horizon can be composed of what was learned.
    """

    CARRIED = (
        *dict.fromkeys(ExplicitLoop.CARRIED + ImplicitLoop.CARRIED),
        *("short_steps", "dear_steps", "hopeless_steps", "ahead"),
    )
    # Numbers of consecutive steps whose predicted cost exceeds a limit.
    short_steps = dear_steps = hopeless_steps = 0
    ahead = 0.0  # predicted number of steps up to the horizon

    def __init__(self, prepared: Prepared, *rest: Any):
        super().__init__(prepared, *rest)
        self._problem, self.divides = prepared.problem, "legs" in prepared.plan.reasons
        near = prepared.near
        limit = _INSTEAD if near is not None and near.usable else _HOPELESS
        self._hopeless = np.inf if prepared.patient else limit

    def advance(self) -> Status:
        if self.dear_steps >= _PATIENCE and self._divisible:
            return Status.DIVIDED
        if self.hopeless_steps >= _PATIENCE:
            return Status.TOO_SLOW
        if self.clock == 0:
            # The test takes seconds to compile; no Gaussian is exact for a drift that bends.
            if not bends(self._problem) and self.skip_exact_source():
                return Status.FINISHED
            if self.layout.mesh is not None:
                return self.begin()  # collectives must run in the same order on all devices
            with ThreadPoolExecutor(1) as pool:
                # The velocity is compiled during the first step.
                pool.submit(self.compilation())
                return self.begin()
        if self.short_steps >= _PATIENCE:
            return self.implicit_step()
        return self.explicit_step()

    def accept(self, step: Step, start: Velocity, length: float, rejected: int) -> None:
        super().accept(step, start, length, rejected)
        # The prediction assumes lengths proportional to the clock.
        self.ahead = float(np.log(self.end / self.clock) / np.log1p(length / self.clock))
        steps, size = len(self.history) + self.ahead, len(self.theta)
        # Points beyond those of the rule were asked for, and make no training dear.
        points = min(self.plan.samples, samples_rule(self.settings, size).value)
        exact, cost = costs(steps, points, size, self.plan.tolerance)
        few = _FEW * max(1.0, self.ansatz.source.sde.dim / 4)
        early = self.clock < _EARLY * self.end
        affordable = steps <= few or exact <= _AFFORDABLE
        self.short_steps = 0 if affordable or early else self.short_steps + 1
        dear, hopeless = cost > _AFFORDABLE, cost > self._hopeless * _AFFORDABLE
        self.dear_steps = self.dear_steps + 1 if dear and not early else 0
        self.hopeless_steps = self.hopeless_steps + 1 if hopeless and not early else 0

    @property
    def _divisible(self) -> bool:
        """`True` if the rest of the horizon can be composed of the time reached.

        Where paths leave the law of starts, composition needs another training for a wider law,
        with about as many steps as were made.
        """
        far_enough = self.clock**2 * MOST_LEGS >= self.end**2
        whole = self.divides and self.plan.legs == 1
        if not (whole and far_enough and divisible(self._problem)):
            return False
        return self.ahead > len(self.history) or self._stays

    @functools.cached_property
    def _stays(self) -> bool:
        return stays(self._problem, MOST_LEGS)

    def skip_exact_source(self) -> bool:
        """Move to the horizon with the flow at the identity, if the source is exact.

        This is the case for linear equations. The test needs neither Jacobians nor least squares.
        """
        draws = self.draw()
        points = Points(draws.x0, draws.noise, draws.weight, draws.layout)
        clocks = np.geomspace(self.length, self.end, _SOURCE_TESTS)
        forcings = np.asarray(source_forcings(self.ansatz, jnp.asarray(clocks), points))
        # NaN is not negligible.
        if not all(map(self.negligible, forcings)):
            return False
        zero = np.zeros_like(self.theta)
        for clock, forcing in zip(clocks, map(float, forcings), strict=True):
            length = float(clock) - self.clock
            self.move(self.theta, length, (zero, zero))
            residual = float(forcing >= ROUNDING)  # the flow explains nothing of the forcing
            found = Diagnostics(residual, residual, rank=0.0, condition=1.0)
            sizes = {"error": 0.0, "source_gap": 0.0, "rejected": 0}
            self.record(length, forcing, found, regularisation=self.regularisation.value, **sizes)
        return True
