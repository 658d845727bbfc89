r"""The time loop: parameters follow their velocity from the Dirac start to the horizon.

A host loop around one compiled velocity. Points are frozen within a step, or the error estimate
would see sampling noise, and drawn again for the next. Every draw's key is made from the number of
the step, so a run is determined by its key.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from ..flow.ansatz import AbstractAnsatz, StandardisedAnsatz
from ..galerkin.collocation import CUBES, Draws, Points, draw, place
from ..galerkin.velocity import Velocity, implicit_velocity, survey, velocity
from ..problem.laws import AbstractLaw
from .history import Record
from .regularisation import Regularisation
from .settings import Settings
from .status import Status
from .step import Budget, Parameters, Step, VectorField, bogacki_shampine, fisher_norm
from .trajectory import Trajectory

# A step below this share of the clock's range is no progress.
_SMALLEST = 1e-9
# Of the budget, for the first step.
_START_SHARE = 0.1
# Nats by which the log-density may change in a step, root mean square. On an Ornstein-Uhlenbeck
# process in two dimensions steps of 0.6 to 0.8 nats passed the error test (tolerance 5e-3) and left
# an error of 8e-6; with this bound 4e-7, in the same time.
_MOST_CHANGE = 0.3


class TimeLoop:
    """The state of a training, advanced one accepted step at a time."""

    def __init__(
        self,
        ansatz: AbstractAnsatz,
        starts: AbstractLaw,
        horizon: float,
        settings: Settings,
        key: PRNGKeyArray,
    ):
        self.ansatz, self.starts, self.settings, self.key = ansatz, starts, settings, key
        self.end = float(np.sqrt(horizon))
        self.length = float(np.sqrt(settings.first_time * horizon))
        # In raw coordinates the source alone is the density up to the first time.
        self.clock = 0.0 if ansatz.standardised else self.length
        self.theta = self.origin = np.asarray(ansatz.theta)
        self.budget = Budget(settings.tolerance, settings.allowance)
        self.regularisation = Regularisation(settings.regularisation)
        self.prior = np.zeros_like(self.theta)
        self.candidates: Array = jnp.zeros((len(self.regularisation.spread()), len(self.theta)))
        self.clocks = [self.clock]
        self.thetas = [self.theta]
        self.first: list[np.ndarray] = []
        self.last: list[np.ndarray] = []
        self.history: list[Record] = []
        self._began = time.monotonic()

    def run(self, report: Callable[[Record], None]) -> Status:
        """Step until the horizon, a limit or a failure."""
        while self.clock < self.end:
            if len(self.history) >= self.settings.max_steps:
                return Status.STEP_LIMIT
            if self.seconds() >= self.settings.max_seconds:
                return Status.TIME_LIMIT
            status = self._advance() if self.clock > 0 else self._begin()
            if status is not Status.FINISHED:
                return status
            report(self.history[-1])
        return Status.FINISHED

    def trajectory(self) -> Trajectory:
        """The path so far."""
        empty = np.zeros((0, len(self.theta)))
        first, last = (np.stack(rows) if rows else empty for rows in (self.first, self.last))
        return Trajectory(np.array(self.clocks), np.stack(self.thetas), first, last)

    def _begin(self) -> Status:
        """The first step, implicit, from the Dirac start."""
        draws, rejected, error = self._draw(), 0, np.nan
        points = self._place(self.theta, 0.0, draws)
        ansatz, theta = self.ansatz, jnp.asarray(self.theta)
        assert isinstance(ansatz, StandardisedAnsatz)  # others begin at a positive clock
        regularisation = jnp.asarray(self.regularisation.value)

        def implicit(length: float) -> Velocity:
            return implicit_velocity(ansatz, theta, jnp.asarray(length), points, regularisation)

        field = self._field(draws)
        with ThreadPoolExecutor(1) as pool:
            # Compiled at the same time, the velocity costs less of a wait.
            pool.submit(_in_float64, field, self.theta, self.length)
            start = implicit(self.length)
        while self.length >= _SMALLEST * self.end:
            half = implicit(self.length / 2)
            new = self.theta + self.length * np.asarray(start.theta_dot)
            end = field(new, self.length)
            # The step is off by its length times half the change of the velocity along it, and half
            # of that change is seen between the velocities for the whole and for half of it.
            change = self.length * (np.asarray(start.theta_dot) - np.asarray(half.theta_dot))
            error = float(fisher_norm(change, end.normal.gram))
            if error <= _START_SHARE * self.budget.total and _finite(end.theta_dot):
                self._accept(Step(new, start, error), start, end, self.length, rejected)
                return Status.FINISHED
            rejected += 1
            self.length, start = self.length / 2, half
        return Status.STEP_COLLAPSED if np.isfinite(error) else Status.NOT_FINITE

    def _advance(self) -> Status:
        """One accepted step; any status but `FINISHED` means that none was possible."""
        field = self._field(self._draw())
        start = field(self.theta, self.clock)
        if not _finite(start.theta_dot):
            return Status.NOT_FINITE
        rejected = 0
        # Beyond this the embedded error estimate means little.
        longest = _MOST_CHANGE / max(float(start.forcing), 1e-300)
        while True:
            length = min(self.length, self.end - self.clock, longest)
            step = bogacki_shampine(field, self.theta, self.clock, length, start)
            if step.error <= self._share(length) and _finite(step.end.theta_dot):
                self._accept(step, start, step.end, length, rejected)
                return Status.FINISHED
            rejected += 1
            # NaN fails the comparison above; there the estimate says nothing, so the step is cut.
            finite = np.isfinite(step.error)
            shorter = self._next_length(length, step.error) if finite else 0.2 * length
            self.length = min(shorter, 0.7 * length)
            if self.length < _SMALLEST * self.end:
                return Status.STEP_COLLAPSED if finite else Status.NOT_FINITE

    def _share(self, length: float) -> float:
        return self.budget.share(length / self.end)

    def _next_length(self, length: float, error: float) -> float:
        return self.end * self.budget.next_length(length / self.end, error)

    def _accept(
        self, step: Step, start: Velocity, end: Velocity, length: float, rejected: int
    ) -> None:
        """Move to the end of a step whose velocity there is `end`, and prepare the next."""
        # A residual that lasted over the whole horizon at twice the rate of the budget. It does not
        # last: fresh points are drawn for every step.
        enough = (2 * self.budget.total / self.end / max(float(start.forcing), 1e-300)) ** 2
        fresh = self.regularisation.choose(np.asarray(start.fresh_residuals), enough)
        # Landing on the horizon exactly, not within rounding of it.
        landed = self.clock + length >= self.end * (1 - 1e-12)
        self.clock = self.end if landed else self.clock + length
        self.theta = step.theta
        self.clocks.append(self.clock)
        self.thetas.append(step.theta)
        self.first.append(np.asarray(start.theta_dot))
        self.last.append(np.asarray(step.end.theta_dot))
        self.length = self._next_length(length, step.error)
        spread = jnp.asarray(self.regularisation.spread())
        judged = survey(end.normal, spread, jnp.asarray(self.prior))
        self.candidates = judged.candidates
        self.prior = self.settings.momentum * np.asarray(end.theta_dot)
        self.prior -= self.settings.recall * (self.theta - self.origin) / self.clock
        self.history.append(
            Record(
                time=self.clock**2,
                length=length,
                error=step.error,
                residual=float(start.residual),
                fresh_residual=fresh,
                regularisation=self.regularisation.value,
                rank=float(judged.ranks[len(judged.ranks) // 2]),
                forcing=float(start.forcing),
                rejected=rejected,
                seconds=self.seconds(),
            )
        )

    def _draw(self) -> Draws:
        key = jr.fold_in(self.key, len(self.history))
        cube = CUBES[self.settings.sampling]
        samples = self.settings.samples
        assert samples is not None  # settled before the loop is made
        share, dim = self.settings.effective_share, self.ansatz.source.sde.dim
        return draw(cube, key, self.starts, dim, samples, share)

    def _place(self, theta: Parameters, clock: float, draws: Draws) -> Points:
        return place(self.ansatz, jnp.asarray(theta), jnp.asarray(clock), draws)

    def _field(self, draws: Draws) -> VectorField:
        regularisation = jnp.asarray(self.regularisation.value)
        prior, candidates = jnp.asarray(self.prior), self.candidates
        frozen = self._place(self.theta, self.clock, draws)

        def field(theta: Parameters, clock: float) -> Velocity:
            points = frozen
            if not self.ansatz.standardised:  # raw points spread with the density
                points = self._place(theta, clock, draws)
            return velocity(
                *(self.ansatz, jnp.asarray(theta), jnp.asarray(clock), points),
                *(regularisation, prior, candidates),
            )

        return field

    def seconds(self) -> float:
        """Wall time since the loop was made."""
        return time.monotonic() - self._began


def _in_float64(function: Callable, *args: object) -> object:
    """For threads: each has a precision of its own."""
    with jax.enable_x64(True):
        return function(*args)


def _finite(theta_dot: Array) -> bool:
    return bool(np.all(np.isfinite(theta_dot)))
