r"""The time loop: parameters follow the density from the Dirac start to the horizon.

A loop in Python around compiled functions. Points are fixed within a step, because otherwise the
error estimate would contain sampling noise, and drawn again for the next step. The key of each draw
depends on the number of the step, so a run is determined by its key, and its remainder by its
`state`.
"""

import abc
import math
import time
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ..flow.ansatz import AbstractAnsatz
from ..galerkin.collocation import Draws, Points, draw, laid_out, place
from ..galerkin.velocity import Survey
from ..planning.prepare import Prepared
from ..sde.quasi_random import CUBES
from .multiprocess import ProcessGroup
from .regularisation import Regularisation
from .state import Diagnostics, Record, State, Status, Trajectory, diagnosis, diverged

# Steps shorter than this fraction of the clock's range make no progress.
SMALLEST = 1e-9
# Largest change of the log-density in a step, root mean square in nats. Beyond this the error
# estimate is unreliable: on an Ornstein-Uhlenbeck process in two dimensions, explicit steps of 0.6
# to 0.8 nats passed the error test (tolerance 5e-3) and gave an error of 8e-6; with this bound the
# error was 4e-7, in the same time.
MOST_CHANGE = 0.3

# Lists of a loop, one entry for each knot or step.
_PATH = ("clocks", "thetas", "first", "last", "history")

Parameters = Float[np.ndarray, " m"]


class Budget(eqx.Module):
    r"""The error allowed in each step.

    A step over a fraction $h$ of the clock's range may make an error of `total` times
    $h + $ `allowance`. The allowance is for short steps near the start, where the velocity of the
    parameters changes fast: without it the steps there become tiny. With an infinite allowance
    every step may make an error of `total`.
    """

    total: float
    allowance: float

    def allowed_error(self, length: float) -> float:
        """Return the error in nats allowed in a step over the fraction `length` of the clock."""
        if math.isinf(self.allowance):
            return self.total
        return self.total * (length + self.allowance)

    def next_length(self, length: float, error: float) -> float:
        """Return the length at which the error equals the allowed one, with safety factors."""
        ratio = max(error / self.allowed_error(length), 1e-6)
        # The error scales with the third power of the length, the allowed error at most linearly.
        order = 3 - length / (length + self.allowance)
        return length * min(2.0, max(0.2, 0.8 * ratio ** (-1 / order)))


def diagnostics_of(residual: float, held_out: float, surveyed: Survey) -> Diagnostics:
    """Return the diagnostics of an equation with the current value of the regularisation."""
    current = len(surveyed.ranks) // 2
    rank, condition = surveyed.ranks[current], surveyed.conditions[current]
    return Diagnostics(float(residual), held_out, float(rank), float(condition))


class TimeLoop(abc.ABC):
    """The state of a training, advanced one accepted step at a time."""

    ansatz: AbstractAnsatz
    # Attributes that steps change, besides the path and the history. All of them must be listed, or
    # a resumed run gives another result.
    CARRIED: ClassVar[tuple[str, ...]] = ("length", "velocity", "bound", "open_end")
    processes = ProcessGroup()
    divides = False  # whether the loop may end before the horizon, which is then composed

    def __init__(
        self,
        prepared: Prepared,
        key: PRNGKeyArray,
        began: float | None = None,
        processes: ProcessGroup | None = None,
    ):
        plan, horizon = prepared.plan, prepared.problem.horizon
        self.plan, self.settings, self.layout = plan, prepared.settings, prepared.layout
        self.processes = processes or self.processes
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
        """Make one accepted step; return a status other than `FINISHED` if none was possible."""

    def run(self, report: Callable[[Record], None]) -> Status:
        """Step until the horizon, a limit or a failure; `report` is called after each step."""
        while True:
            # All checks come before the step, because a resumed run has to repeat them.
            if diverged(self.history):
                return diagnosis(self.history)
            if self.clock >= self.end:
                return Status.FINISHED
            if len(self.history) >= self.plan.max_steps:
                return Status.STEP_LIMIT
            if self.history and self.out_of_time():  # a run has at least one step
                return Status.TIME_LIMIT
            self.processes.raise_signals()
            status = self.advance()
            if status is not Status.FINISHED:
                return status
            report(self.history[-1])

    def state(self) -> State:
        """Return a copy of the state after the last accepted step.

        It is valid between steps only: attempts at a step change lengths and regularisation.
        """
        return State(
            **{name: tuple(getattr(self, name)) for name in _PATH},
            seconds=self.seconds(),
            carried={name: getattr(self, name) for name in self.CARRIED}
            | {"regularisation": dict(vars(self.regularisation))},
        )

    def restore(self, state: State) -> None:
        """Continue from the state of a loop of the same run."""
        for name in _PATH:
            setattr(self, name, list(getattr(state, name)))
        self.clock, self.theta = self.clocks[-1], self.thetas[-1]
        self._began = time.monotonic() - state.seconds
        vars(self.regularisation).update(state.carried["regularisation"])
        for name in self.CARRIED:
            setattr(self, name, state.carried[name])

    def record(self, length: float, forcing: float, found: Diagnostics, **figures: Any) -> None:
        """Append the record of the step that has just been made."""
        # The mean absolute residual is at most its root mean square.
        self.bound += 0.5 * length * forcing * float(np.sqrt(found.fresh_residual))
        figures |= {"length": length, "forcing": forcing, "bound": self.bound, **found._asdict()}
        self.history.append(Record(time=self.clock**2, seconds=self.seconds(), **figures))

    def trajectory(self) -> Trajectory:
        """Return the path of the parameters so far."""
        first, last = (np.reshape(rows, (-1, len(self.theta))) for rows in (self.first, self.last))
        return Trajectory(np.array(self.clocks), np.stack(self.thetas), first, last)

    def seconds(self) -> float:
        """Return the wall time since the run began, without interruptions."""
        return time.monotonic() - self._began

    def out_of_time(self) -> bool:
        """Return `True` if another step would not end within `max_seconds`.

        Checked before every attempt at a step.
        """
        # The shorter of the last two, because programs are compiled in others.
        ends = [record.seconds for record in self.history[-3:]]
        pace = min(np.diff(ends), default=0.0)
        return bool(self.processes.agree(self.seconds() + pace >= self.plan.max_seconds)[0])

    def allowed_error(self, length: float) -> float:
        """Return the error in nats that the budget allows in a step of this length."""
        return self.budget.allowed_error(length / self.end)

    def next_length(self, length: float, error: float) -> float:
        """Return the length that meets the budget, after a step of this length and error."""
        return self.end * self.budget.next_length(length / self.end, error)

    def move(self, theta: Parameters, length: float, slopes: tuple[Parameters, Parameters]) -> None:
        """Move to the end of an accepted step; `slopes` are the velocities at its two ends."""
        # Reach the horizon exactly, and not up to rounding.
        landed = self.clock + length >= self.end * (1 - 1e-12)
        self.clock = self.end if landed else self.clock + length
        self.theta = theta
        self.clocks.append(self.clock)
        self.thetas.append(theta)
        self.first.append(slopes[0])
        self.last.append(slopes[1])
        self.open_end = False

    def move_through(self, theta: Parameters, length: float) -> None:
        """Move to the end of an accepted step, with velocities from the knots alone.

        The slopes of each cubic at its ends are those of parabolas through three knots; the last
        slope is known after the next step. The stages of a step scatter around this path: on a
        double well in the plane a cubic through the stages had residuals several times larger, and
        an error bound of 0.6 instead of 0.1.
        """
        chord, slope = (theta - self.theta) / length, self.slope_to(theta, length)
        if self.open_end:
            self.last[-1] = slope
        self.move(theta, length, (slope, 2 * chord - slope))
        self.open_end = True

    def slope_to(self, theta: Parameters, length: float) -> Parameters:
        """Return the slope, at the last knot, of the parabola through the last two and the next."""
        chord = (theta - self.theta) / length
        if not self.first:
            return chord
        before = self.clocks[-1] - self.clocks[-2]
        last = (self.theta - self.thetas[-2]) / before
        return (length * last + before * chord) / (length + before)

    def prior(self) -> Parameters:
        """Return the velocity towards which the solve is regularised."""
        if self.clock == 0:
            return self.velocity
        back = (self.theta - self.origin) / self.clock
        return self.plan.momentum * self.velocity - self.plan.recall * back

    def good_enough(self, forcing: float) -> float:
        """Return a relative residual that need not decrease further.

        If it lasted until the horizon, it would use twice the error budget. It does not last,
        because each step has new points.
        """
        return (2 * self.budget.total / self.end / max(forcing, 1e-300)) ** 2

    def negligible(self, forcing: float) -> bool:
        """Return `True` if the forcing contributes at most a thousandth of the error budget.

        The source is then exact for all practical purposes, and the parameters stay constant.
        """
        return forcing * self.end <= 1e-3 * self.budget.total

    def draw(self, held_out: bool = False) -> Draws:
        """Return the draws of this step, or others for held-out points."""
        key = jr.fold_in(self.key, len(self.history))
        key = jr.fold_in(key, 1) if held_out else key
        sampling, plan = self.settings.sampling, self.plan
        cube = CUBES[sampling] if isinstance(sampling, str) else sampling
        dim = self.ansatz.source.sde.dim
        drawn = draw(cube, key, self.starts, dim, plan.samples, plan.effective_share)
        return laid_out(drawn, self.layout)

    def place(self, theta: Parameters, clock: float, draws: Draws) -> Points:
        """Return the points of the density to which the ansatz maps draws."""
        # At clock 0 the flow is the identity, and the frame of some sources is undefined.
        clock = clock or self.length
        return place(self.ansatz, jnp.asarray(theta), jnp.asarray(clock), draws)
