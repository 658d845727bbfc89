"""Implicit steps, for a flow in standardised coordinates."""

import dataclasses

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..flow.ansatz import StandardisedAnsatz
from ..galerkin.assembly import linearise
from ..galerkin.collocation import Points, tempered
from ..galerkin.implicit import (
    Factor,
    Iterate,
    System,
    factor,
    iterate,
    projected_size,
    system,
    values_at,
)
from ..galerkin.velocity import relative_residuals, root_mean_square, survey
from .diagnosis import diagnosis
from .implicit_step import WEIGHT, Iteration, Stages, solve_stages
from .loop import MOST_CHANGE, SMALLEST, Parameters, TimeLoop
from .status import Status

# Of the budget, for the first step.
_START_SHARE = 0.1
# Of a step's share of the budget: the change at which its iterations end.
_ITERATION_SHARE = 0.3
# Iterations of a stage above which the next step may not be longer, or must be shorter.
_MANY, _TOO_MANY = 6, 8
# How far parameters between the ends of a step may lead off, as a share of what the flow has left
# over so far; the whole budget if that is more. Detours do not add up.
_DETOUR_SHARE = 0.05
# Steps between two looks at fresh points.
_LOOK_EVERY = 2
# Of what the flow leaves over in a step: an error in time that makes no difference beside it.
_BESIDE = 0.02


@dataclasses.dataclass(frozen=True)
class _Linearised:
    """The equation of a stage, linearised at some parameters and clock."""

    theta: Parameters
    clock: float
    weight: float  # of the forcing
    system: System


@dataclasses.dataclass(frozen=True)
class _Attempt:
    """A step whose stages have converged, and sizes at the points in nats, root mean square."""

    stages: Stages
    equation: _Linearised
    error: float  # estimated, at the end
    change: float  # of the log-density over the step
    detour: float  # of the path of the parameters from the step's own solution, half way


class ImplicitLoop(TimeLoop):
    """Implicit steps, from the Dirac start itself."""

    ansatz: StandardisedAnsatz
    CARRIED = (*TimeLoop.CARRIED, "residual", "fresh_residual", "rank", "condition")
    # Of the last equation that was judged on fresh points.
    residual = fresh_residual = rank = condition = np.nan

    def begin(self) -> Status:
        """The first step, by the implicit Euler method, whose equation holds at its end only."""
        points = self.place(self.theta, 0.0, self.draw())
        equation, new = self._euler(points, self.length)
        rejected, error = 0, np.nan
        while self.length >= SMALLEST * self.end:
            half_equation, half = self._euler(points, self.length / 2)
            # The step is off by its length times half the change of the velocity along it, and half
            # of that change is seen between the velocities for the whole and for half of it.
            change = new - self.theta - 2 * (half - self.theta)
            error = float(root_mean_square(equation.system.linearisation.times(change)))
            if error <= _START_SHARE * self.budget.total:
                length, slope = self.length, (new - self.theta) / self.length
                forcing = float(root_mean_square(equation.system.rows.forcing))
                self._look_at_fresh_points(equation, forcing)
                self.velocity = slope
                self.move(new, length, (slope, slope))
                self.length = self.next_length(length, error)
                self._record(length, error, (forcing, 0.0), rejected)
                return Status.FINISHED
            rejected += 1
            self.length, equation, new = self.length / 2, half_equation, half
        return diagnosis(self.history) if np.isfinite(error) else Status.NOT_FINITE

    def _euler(self, points: Points, length: float) -> tuple[_Linearised, Parameters]:
        """The equation of an implicit Euler step from zero, and its solution to first order."""
        equation = self._linearised(self.theta, length, points, length)
        normal = equation.system.normal
        if self.negligible(float(root_mean_square(equation.system.rows.forcing))):
            return equation, self.theta
        solver = factor(normal, jnp.asarray(self.regularisation.strength))
        return equation, self.theta + length * np.asarray(solver.solve(normal.moment))

    def implicit_step(self) -> Status:
        """One accepted step of the ESDIRK method."""
        self.regularisation.settle()
        points = self.place(self.theta, self.clock, self.draw())
        theta, clock = jnp.asarray(self.theta), jnp.asarray(self.clock)
        _, forcing, size = values_at(self.ansatz, theta, clock, points)
        if not np.isfinite(float(size)):
            return Status.NOT_FINITE
        # The record of the step is made with these weights; a certificate draws points of its own.
        points = tempered(points, forcing)
        log_ratio, forcing, _ = values_at(self.ansatz, theta, clock, points)
        rejected = 0
        while self.length >= SMALLEST * self.end:
            (length,) = self.crew.agree(min(self.length, self.end - self.clock))
            attempt = self._attempt((self.theta, log_ratio, forcing), points, length, rejected)
            if attempt is None:
                self.length = length / 2
            elif self._acceptable(attempt, length):
                self._accept(attempt, length, float(root_mean_square(log_ratio)), rejected)
                return Status.FINISHED
            else:
                self.length = min(self._following_length(attempt, length), 0.7 * length)
            rejected += 1
            if self.late():
                return Status.TIME_LIMIT
        ahead = jnp.asarray(self.clock + 2 * self.length)
        _, _, size = values_at(self.ansatz, theta, ahead, points)
        return diagnosis(self.history) if np.isfinite(float(size)) else Status.NOT_FINITE

    def _allowed(self, length: float) -> float:
        """Error allowed in a step: its share of the budget, or what is lost beside the residual."""
        last = self.history[-1]
        left_over = length * last.forcing * float(np.sqrt(min(last.fresh_residual, 1.0)))
        return max(self.share(length), _BESIDE * left_over)

    def _longest_detour(self) -> float:
        return max(self.budget.total, _DETOUR_SHARE * self.bound)

    def _acceptable(self, attempt: _Attempt, length: float) -> bool:
        return (
            attempt.error <= self._allowed(length)
            and attempt.change <= 1.3 * MOST_CHANGE
            and attempt.detour <= self._longest_detour()
        )

    def _attempt(
        self,
        start: tuple[Parameters, Array, Array],
        points: Points,
        length: float,
        rejected: int,
    ) -> _Attempt | None:
        """A step of some length, with as much regularisation as its stages need to converge."""
        slope = self.prior() * 0.5**rejected
        # Linearised where the step is expected to be half way.
        middle = (self.theta + length / 2 * slope, self.clock + length / 2)
        first = self._linearised(*middle, points, WEIGHT * length)
        enough = _ITERATION_SHARE * self._allowed(length)
        while True:
            strength = jnp.asarray(self.regularisation.strength)
            equation = (first.system, factor(first.system.normal, strength))
            iteration = self._iteration(equation, points)
            stages = solve_stages(iteration, start, self.clock, length, slope, enough)
            if stages is not None:
                sizes = self.crew.agree(
                    float(projected_size(equation, stages.embedded_error(length))),
                    float(root_mean_square(stages.log_ratio - start[1])),
                    self._detour(equation, stages, start[1], points, length),
                )
                return _Attempt(stages, first, *sizes)
            if self.late() or not self.regularisation.lift():
                return None

    def _iteration(self, equation: tuple[System, Factor], points: Points) -> Iteration:
        def one(
            theta: Parameters, clock: float, weight: float, target: Array, guess: Parameters
        ) -> Iterate:
            return iterate(
                *(self.ansatz, jnp.asarray(theta), jnp.asarray(clock), points, equation),
                *(jnp.asarray(weight), target, jnp.asarray(guess)),
            )

        return one

    def _detour(
        self,
        equation: tuple[System, Factor],
        stages: Stages,
        start: Array,
        points: Points,
        length: float,
    ) -> float:
        end = stages.thetas[-1]
        bend = self.slope_to(end, length) - (end - self.theta) / length
        theta, expected = (self.theta + end) / 2 + length / 4 * bend, stages.halfway(start, length)
        clock = jnp.asarray(self.clock + length / 2)
        log_ratio, _, _ = values_at(self.ansatz, jnp.asarray(theta), clock, points)
        return float(projected_size(equation, log_ratio - expected))

    def _linearised(
        self, theta: Parameters, clock: float, points: Points, weight: float
    ) -> _Linearised:
        """The equation of a stage, linearised."""
        at = linearise(self.ansatz, jnp.asarray(theta), jnp.asarray(clock), points)
        return _Linearised(theta, clock, weight, system(at, jnp.asarray(weight)))

    def _accept(self, attempt: _Attempt, length: float, gap: float, rejected: int) -> None:
        # That to which residuals are relative.
        forcing = float(root_mean_square(attempt.equation.system.rows.forcing))
        if len(self.history) % _LOOK_EVERY == 1:
            self._look_at_fresh_points(attempt.equation, forcing)
        stages = attempt.stages
        self.velocity = (stages.thetas[-1] - self.theta) / length
        self.move_through(stages.thetas[-1], length)
        following = self._following_length(attempt, length)
        # What has just been too long will hardly do at once.
        self.length = min(following, length) if rejected else following
        self._record(length, attempt.error, (forcing, gap), rejected)
        self.regularisation.relax()

    def _following_length(self, attempt: _Attempt, length: float) -> float:
        error = attempt.error * self.share(length) / self._allowed(length)
        following = self.next_length(length, error)
        following = min(following, length * MOST_CHANGE / max(attempt.change, 1e-300))
        # Where paths are smooth, detours fall with the third power of the length or faster; scatter
        # of the knots falls with the first. The root taken keeps lengths from swinging.
        detour = attempt.detour / self._longest_detour()
        following = min(following, 0.8 * length * max(detour, 1e-6) ** -0.25)
        if attempt.stages.iterations > _MANY:
            following = min(following, length)
        if attempt.stages.iterations > _TOO_MANY:
            following = min(following, 0.7 * length)
        return following

    def _look_at_fresh_points(self, equation: _Linearised, forcing: float) -> None:
        """Judge an equation, for some regularisations, on points it has not seen."""
        seen = equation.system
        spread = jnp.asarray(self.regularisation.spread())
        judged = survey(seen.normal, spread, jnp.asarray(self.prior()))
        points = self.place(self.theta, self.clock, self.draw(again=1))
        theta, clock, weight = map(jnp.asarray, (equation.theta, equation.clock, equation.weight))
        points = tempered(points, values_at(self.ansatz, theta, clock, points)[1])
        fresh = linearise(self.ansatz, theta, clock, points).implicit(weight)
        residuals, fresh_residuals = (
            np.asarray(relative_residuals(rows, judged.candidates)) for rows in (seen.rows, fresh)
        )
        good = self.good_enough(forcing)
        self.fresh_residual = self.regularisation.choose(fresh_residuals, good)
        present = len(residuals) // 2
        self.residual, self.rank = float(residuals[present]), float(judged.ranks[present])
        self.condition = float(judged.conditions[present])

    def _record(
        self, length: float, error: float, sizes: tuple[float, float], rejected: int
    ) -> None:
        """Write down a step; `sizes` are those of the forcing and of the gap to the source."""
        self.record(
            length,
            sizes[0],
            self.fresh_residual,
            error=error,
            residual=self.residual,
            regularisation=self.regularisation.strength,
            rank=self.rank,
            condition=self.condition,
            source_gap=sizes[1],
            rejected=rejected,
        )
