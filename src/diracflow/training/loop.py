r"""The time loop: parameters follow their velocity from the Dirac start to the horizon.

A host loop around one compiled velocity. Points are frozen within a step, or the error estimate
would see sampling noise, and drawn again for the next. Every draw's key is made from the number of
the step, so a run is determined by its key.
"""

import time
from collections.abc import Callable

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..flow.ansatz import Ansatz
from ..galerkin.collocation import CUBES, Draws, draw
from ..galerkin.velocity import Velocity, velocity
from ..problem.laws import AbstractLaw
from .history import Record
from .settings import Settings
from .status import Status
from .step import Step, bogacki_shampine, next_length
from .trajectory import Trajectory

# A step below this share of the clock's range is no progress.
_SMALLEST = 1e-9


class TimeLoop:
    """The state of a training, advanced one accepted step at a time."""

    def __init__(
        self,
        ansatz: Ansatz,
        starts: AbstractLaw,
        horizon: float,
        settings: Settings,
        key: PRNGKeyArray,
    ):
        self.ansatz, self.starts, self.settings, self.key = ansatz, starts, settings, key
        self.end = float(np.sqrt(horizon))
        self.clock = float(np.sqrt(settings.first_time * horizon))
        self.length = self.clock
        self.theta = ansatz.theta
        self.velocity = jnp.zeros_like(self.theta)
        self.clocks = [self.clock]
        self.thetas = [np.asarray(self.theta)]
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
            status = self._advance()
            if status is not Status.FINISHED:
                return status
            report(self.history[-1])
        return Status.FINISHED

    def trajectory(self) -> Trajectory:
        """The path so far."""
        empty = np.zeros((0, len(self.theta)))
        first, last = (np.stack(rows) if rows else empty for rows in (self.first, self.last))
        return Trajectory(np.array(self.clocks), np.stack(self.thetas), first, last)

    def _advance(self) -> Status:
        """One accepted step; any status but `FINISHED` means that none was possible."""
        draws = self._draw()
        start = self._field(draws)(self.theta, self.clock)
        if not _finite(start.theta_dot):
            return Status.NOT_FINITE
        rejected = 0
        while True:
            length = min(self.length, self.end - self.clock)
            step = bogacki_shampine(self._field(draws), self.theta, self.clock, length, start)
            if step.error <= self.settings.tolerance and _finite(step.end.theta_dot):
                self._accept(step, start, length, rejected)
                return Status.FINISHED
            rejected += 1
            # NaN fails the comparison above; there the estimate says nothing, so the step is cut.
            finite = np.isfinite(step.error)
            tolerance = self.settings.tolerance
            self.length = min(
                next_length(length, step.error, tolerance) if finite else 0.2 * length,
                0.7 * length,
            )
            if self.length < _SMALLEST * self.end:
                return Status.STEP_COLLAPSED if finite else Status.NOT_FINITE

    def _accept(self, step: Step, start: Velocity, length: float, rejected: int) -> None:
        # Landing on the horizon exactly, not within rounding of it.
        landed = self.clock + length >= self.end * (1 - 1e-12)
        self.clock = self.end if landed else self.clock + length
        self.theta, self.velocity = step.theta, step.end.theta_dot
        self.clocks.append(self.clock)
        self.thetas.append(np.asarray(step.theta))
        self.first.append(np.asarray(start.theta_dot))
        self.last.append(np.asarray(step.end.theta_dot))
        self.length = next_length(length, step.error, self.settings.tolerance)
        self.history.append(
            Record(
                time=self.clock**2,
                length=length,
                error=step.error,
                residual=float(start.residual),
                fresh_residual=float(start.fresh_residual),
                rank=float(start.rank),
                forcing=float(start.forcing),
                rejected=rejected,
                seconds=self.seconds(),
            )
        )

    def _draw(self) -> Draws:
        key = jr.fold_in(self.key, len(self.history))
        cube = CUBES[self.settings.sampling]
        return draw(cube, key, self.starts, self.ansatz.source.sde.dim, self.settings.samples)

    def _field(self, draws: Draws) -> Callable[[Float[Array, " m"], float], Velocity]:
        regularisation = jnp.asarray(self.settings.regularisation)

        def field(theta: Float[Array, " m"], clock: float) -> Velocity:
            return velocity(
                self.ansatz, theta, jnp.asarray(clock), draws, regularisation, self.velocity
            )

        return field

    def seconds(self) -> float:
        """Wall time since the loop was made."""
        return time.monotonic() - self._began


def _finite(theta_dot: Float[Array, " m"]) -> bool:
    return bool(jnp.all(jnp.isfinite(theta_dot)))
