r"""The time loop: parameters follow the density from the Dirac start to the horizon.

A host loop around compiled pieces. Points are frozen within a step, or the error estimate would see
sampling noise, and drawn again for the next. Every draw's key is made from the number of the step,
so a run is determined by its key, and what it has still to do by its `state`.
"""

import abc
import time
from collections.abc import Callable
from typing import Any, ClassVar

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ..flow.ansatz import AbstractAnsatz
from ..galerkin.collocation import Draws, Points, draw, laid_out, place
from ..planning.prepare import Prepared
from ..sde.quasi_random import CUBES
from .budget import Budget
from .diagnosis import diagnosis, lost
from .history import Record
from .multiprocess import Crew
from .regularisation import Regularisation
from .state import State
from .status import Status
from .trajectory import Trajectory

# A step below this share of the clock's range is no progress.
SMALLEST = 1e-9
# Nats by which the log-density may change in a step, root mean square. Beyond this the error
# estimate means little: with explicit steps, on an Ornstein-Uhlenbeck process in two dimensions,
# those of 0.6 to 0.8 nats passed the error test (tolerance 5e-3) and left an error of 8e-6; with
# this bound 4e-7, in the same time.
MOST_CHANGE = 0.3

Parameters = Float[np.ndarray, " m"]


class TimeLoop(abc.ABC):
    """The state of a training, advanced one accepted step at a time."""

    ansatz: AbstractAnsatz
    # Numbers and arrays that a step leaves to those after it, beside the path and its history.
    # Whatever steps change must be here, or resumed runs end elsewhere.
    CARRIED: ClassVar[tuple[str, ...]] = ("length", "velocity", "bound", "open_end")
    crew = Crew()

    def __init__(
        self,
        prepared: Prepared,
        key: PRNGKeyArray,
        began: float | None = None,
        crew: Crew | None = None,
    ):
        plan, horizon = prepared.plan, prepared.problem.horizon
        self.plan, self.settings, self.layout = plan, prepared.settings, prepared.layout
        self.crew = crew or self.crew
        self.ansatz = self.layout.repeat(prepared.ansatz)
        self.starts, self.key = prepared.problem.law, key
        self.end = float(np.sqrt(horizon))
        self.length = float(np.sqrt(plan.first_time * horizon))
        # In raw coordinates the source alone is the density up to the first time.
        self.clock = 0.0 if prepared.ansatz.standardised else self.length
        self.theta = self.origin = np.asarray(prepared.ansatz.theta)
        self.velocity = np.zeros_like(self.theta)
        self.budget = Budget(plan.tolerance, plan.allowance)
        self.regularisation = Regularisation(prepared.settings.regularisation)
        self.clocks = [self.clock]
        self.thetas = [self.theta]
        self.first: list[Parameters] = []
        self.last: list[Parameters] = []
        self.history: list[Record] = []
        self.bound = 0.0
        self.open_end = False  # whether the last slope of the path waits for the next step
        # Preparations count as time, too.
        self._began = time.monotonic() if began is None else began

    @abc.abstractmethod
    def advance(self) -> Status:
        """One accepted step; any status but `FINISHED` means that none was possible."""

    def run(self, report: Callable[[Record], None]) -> Status:
        """Step until the horizon, a limit or a failure."""
        while True:
            # Looked at first, for a resumed run has not seen what ended the last step.
            if lost(self.history):
                return diagnosis(self.history)
            if self.clock >= self.end:
                return Status.FINISHED
            if len(self.history) >= self.plan.max_steps:
                return Status.STEP_LIMIT
            if self.history and self.late():  # before the first step there is nothing to keep
                return Status.TIME_LIMIT
            self.crew.heed()
            status = self.advance()
            if status is not Status.FINISHED:
                return status
            report(self.history[-1])

    def state(self) -> State:
        """What there is after the last accepted step; it does not change when the loop goes on.

        Within a step it is of no use: attempts change lengths and regularisation.
        """
        values = {name: getattr(self, name) for name in self.CARRIED} | self.regularisation.state()
        return State(
            clocks=tuple(self.clocks),
            thetas=tuple(self.thetas),
            first=tuple(self.first),
            last=tuple(self.last),
            history=tuple(self.history),
            seconds=self.seconds(),
            carried={name: value for name, value in values.items() if value is not None},
        )

    def restore(self, state: State) -> None:
        """Go on where a loop of the same run was."""
        self.clocks, self.thetas = list(state.clocks), list(state.thetas)
        self.first, self.last = list(state.first), list(state.last)
        self.history = list(state.history)
        self.clock, self.theta = self.clocks[-1], self.thetas[-1]
        self._began = time.monotonic() - state.seconds
        self.regularisation.restore(state.carried)
        for name in self.CARRIED:
            if name in state.carried:
                setattr(self, name, state.carried[name])

    def record(self, length: float, forcing: float, fresh_residual: float, **figures: Any) -> None:
        """Write down the step that has just been made."""
        # The mean size of what is left of the forcing is at most its root mean square.
        self.bound += 0.5 * length * forcing * float(np.sqrt(fresh_residual))
        self.history.append(
            Record(
                time=self.clock**2,
                length=length,
                forcing=forcing,
                fresh_residual=fresh_residual,
                bound=self.bound,
                seconds=self.seconds(),
                **figures,
            )
        )

    def trajectory(self) -> Trajectory:
        """The path so far."""
        empty = np.zeros((0, len(self.theta)))
        first, last = (np.stack(rows) if rows else empty for rows in (self.first, self.last))
        return Trajectory(np.array(self.clocks), np.stack(self.thetas), first, last)

    def seconds(self) -> float:
        """Wall time since the loop was made, and that of the run which it resumes."""
        return time.monotonic() - self._began

    def late(self) -> bool:
        """Whether the time that was granted is over; asked before every attempt at a step."""
        return bool(self.crew.agree(self.seconds() >= self.plan.max_seconds)[0])

    def share(self, length: float) -> float:
        """Error allowed in a step of some length."""
        return self.budget.share(length / self.end)

    def next_length(self, length: float, error: float) -> float:
        """Length that meets the budget after a step of some length made some error."""
        return self.end * self.budget.next_length(length / self.end, error)

    def move(self, theta: Parameters, length: float, slopes: tuple[Parameters, Parameters]) -> None:
        """Go to the end of an accepted step with the given velocities at its ends."""
        # Landing on the horizon exactly, not within rounding of it.
        landed = self.clock + length >= self.end * (1 - 1e-12)
        self.clock = self.end if landed else self.clock + length
        self.theta = theta
        self.clocks.append(self.clock)
        self.thetas.append(theta)
        self.first.append(slopes[0])
        self.last.append(slopes[1])
        self.open_end = False

    def move_through(self, theta: Parameters, length: float) -> None:
        """Go to the end of an accepted step on a path through knots alone.

        A piece is a cubic whose slopes at its ends are those of the parabolas through three knots
        each; the last one is known when the next step has been made. The stages of a step scatter
        around such a path: on a double well in the plane a cubic through them had residuals several
        times larger, and a certificate of 0.6 where this one has 0.1.
        """
        chord, slope = (theta - self.theta) / length, self.slope_to(theta, length)
        if self.open_end:
            self.last[-1] = slope
        self.move(theta, length, (slope, 2 * chord - slope))
        self.open_end = True

    def slope_to(self, theta: Parameters, length: float) -> Parameters:
        """Slope at the last knot of the parabola through it, the one before, and a next one."""
        chord = (theta - self.theta) / length
        if not self.first:
            return chord
        before = self.clocks[-1] - self.clocks[-2]
        last = (self.theta - self.thetas[-2]) / before
        return (length * last + before * chord) / (length + before)

    def prior(self) -> Parameters:
        """The velocity towards which regularisation pulls."""
        if self.clock == 0:
            return self.velocity
        back = (self.theta - self.origin) / self.clock
        return self.plan.momentum * self.velocity - self.plan.recall * back

    def good_enough(self, forcing: float) -> float:
        """A relative residual that need not fall further.

        One that lasted over the whole horizon at twice the rate of the budget. It does not last:
        fresh points are drawn for every step.
        """
        return (2 * self.budget.total / self.end / max(forcing, 1e-300)) ** 2

    def negligible(self, forcing: float) -> bool:
        """Whether a forcing, over the whole horizon, would make a thousandth of the budget.

        The source is exact then, or as good as that, and parameters had better not move.
        """
        return forcing * self.end <= 1e-3 * self.budget.total

    def draw(self, again: int = 0) -> Draws:
        """The points of this step, or further ones."""
        key = jr.fold_in(self.key, len(self.history))
        key = jr.fold_in(key, again) if again else key
        sampling, plan = self.settings.sampling, self.plan
        cube = CUBES[sampling] if isinstance(sampling, str) else sampling
        dim = self.ansatz.source.sde.dim
        drawn = draw(cube, key, self.starts, dim, plan.samples, plan.effective_share)
        return laid_out(drawn, self.layout)

    def place(self, theta: Parameters, clock: float, draws: Draws) -> Points:
        """Points of the density to which draws are carried."""
        # At the start itself the flow is the identity, and some sources have no frame.
        clock = clock or self.length
        return place(self.ansatz, jnp.asarray(theta), jnp.asarray(clock), draws)
