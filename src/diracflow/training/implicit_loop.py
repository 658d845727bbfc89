r"""Implicit time steps of the parameters, for a flow in standardised coordinates.

At fixed points the log-density obeys an ordinary differential equation $dq/dc = f(q, c)$, to which
a Runge--Kutta method is applied. Each stage is a least-squares problem for the parameters
(`galerkin.implicit`). In standardised coordinates the Fokker--Planck equation relaxes at the rate
$1/c$ near the start, and at the rates of the drift later. These rates limit the length of explicit
steps, but not that of implicit ones.

The method is ESDIRK 3(2) of Kennedy and Carpenter (Appl. Numer. Math. 44, 2003; the implicit part
of ARK3(2)4L[2]SA). It is L-stable and has four stages; the first is explicit, the last is the
result.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..flow.ansatz import StandardisedAnsatz
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
from ..galerkin.rows import linearise
from ..galerkin.velocity import relative_residuals, root_mean_square, survey
from .loop import MOST_CHANGE, SMALLEST, Parameters, TimeLoop, diagnostics_of
from .state import Diagnostics, Status, diagnosis

_GAMMA = 1767732205903 / 4055673282236
_NODES = np.array([0.0, 2 * _GAMMA, 0.6, 1.0])
_ROWS = (
    (),
    (_GAMMA,),
    (2746238789719 / 10658868560708, -640167445237 / 6845629431997),
    (
        *(1471266399579 / 7840856788654, -4482444167858 / 7529755066697),
        11266239266428 / 11593286722821,
    ),
)
_EMBEDDED = (
    *(2756255671327 / 12835298489170, -10771552573575 / 22201958757719),
    *(9247589265047 / 10645013368117, 2193209047091 / 5459859503100),
)
_ERROR_WEIGHTS = tuple(b - e for b, e in zip((*_ROWS[-1], _GAMMA), _EMBEDDED, strict=True))
# Weights of the stages for the midpoint, of order three: they match the moments of [0, 1/2] up to
# the second.
_HALFWAY = tuple(
    np.linalg.lstsq(np.vander(_NODES, 3, increasing=True).T, [1 / 2, 1 / 8, 1 / 24])[0]
)

# Largest number of iterations of a stage; fewer if it cannot converge within this number.
_MOST_ITERATIONS = 12

# iterate(theta, clock, weight, target, guess)
Iteration = Callable[[Parameters, float, float, Array, Parameters], Iterate]


@dataclasses.dataclass
class Stages:
    """The solved stages of a step."""

    thetas: list[Parameters]
    forcings: list[Array]
    log_ratio: Array  # at the last stage
    iterations: int  # largest number over the stages

    def halfway(self, start: Array, length: float) -> Array:
        """Return the log-density at the midpoint of the step, by dense output of the method."""
        return start + length * _combined(_HALFWAY, self.forcings)

    def embedded_error(self, length: float) -> Array:
        """Return the difference from the embedded method of order two, at the points."""
        return length * _combined(_ERROR_WEIGHTS, self.forcings)


def solve_stages(
    iterate: Iteration,
    start: tuple[Parameters, Array, Array],
    clock: float,
    length: float,
    slope: Parameters,
    enough: float,
) -> Stages | None:
    """Return the stages of a step, or `None` if one of them does not converge.

    `start` has parameters, log-density and forcing at the start of the step, and `slope` is an
    initial guess of the velocity. An iteration has converged if it changes the log-density by less
    than `enough` nats.
    """
    theta, log_ratio, forcing = start
    thetas, forcings, most = [theta], [forcing], 0
    end = log_ratio
    for node, row in zip(_NODES[1:], _ROWS[1:], strict=True):
        target = log_ratio + length * _combined(row, forcings)
        guess = theta + length * node * slope
        found, count = _converged(
            iterate, guess, clock + node * length, length * _GAMMA, target, enough
        )
        if found is None:
            return None
        thetas.append(np.asarray(found.theta))
        forcings.append(found.forcing)
        end = found.log_ratio
        # The next stage is predicted on the line through this one.
        slope = (thetas[-1] - theta) / (length * node)
        most = max(most, count)
    return Stages(thetas, forcings, end, most)


def _combined(weights: Sequence[float], forcings: list[Array]) -> Array:
    total = weights[0] * forcings[0]
    for weight, forcing in zip(weights[1:], forcings[1:], strict=True):
        total = total + weight * forcing
    return total


def _converged(
    iterate: Iteration, guess: Parameters, clock: float, weight: float, target: Array, enough: float
) -> tuple[Iterate | None, int]:
    theta, before = guess, np.inf
    for count in range(1, _MOST_ITERATIONS + 1):
        new = iterate(theta, clock, weight, target, guess)
        size = float(new.size)
        if size <= enough:
            return new, count
        # NaN fails every comparison. Changes may grow, but never by more than a factor of two.
        ratio = size / before
        left = _MOST_ITERATIONS - count
        if not ratio <= 2 or (count > 2 and size * ratio**left > enough):
            return None, count
        theta, before = np.asarray(new.theta), size
    return None, _MOST_ITERATIONS


# Fraction of the budget that the first step may use.
_FIRST_FRACTION = 0.1
# Iterations of a stage end at this fraction of the error allowed in the step.
_ITERATION_FRACTION = 0.3
# Iterations of a stage above which the next step may not be longer, or must be shorter.
_MANY, _TOO_MANY = 6, 8
# Largest interpolation error at the midpoint of a step, as a fraction of the accumulated residual;
# the whole budget if that is larger. Interpolation errors do not accumulate.
_INTERPOLATION_FRACTION = 0.05
# Number of steps between two evaluations on held-out points.
_EVALUATE_EVERY = 2
# A time-integration error below this fraction of the residual of a step is negligible.
_RESIDUAL_FRACTION = 0.02


@dataclasses.dataclass(frozen=True)
class _Linearised:
    """The equation of a stage, linearised at parameters `theta` and `clock`."""

    theta: Parameters
    clock: float
    weight: float  # of the forcing
    system: System


@dataclasses.dataclass(frozen=True)
class _Attempt:
    """A step whose stages have converged; sizes are root mean squares over the points, in nats."""

    stages: Stages
    equation: _Linearised
    error: float  # estimated, at the end of the step
    change: float  # of the log-density over the step
    interpolation: float  # error of the path of the parameters at the midpoint


class ImplicitLoop(TimeLoop):
    """A loop of implicit steps, from the Dirac start at clock 0."""

    ansatz: StandardisedAnsatz
    CARRIED = (*TimeLoop.CARRIED, "diagnostics")
    # Of the last equation that was evaluated on held-out points.
    diagnostics = Diagnostics(np.nan, np.nan, np.nan, np.nan)

    def begin(self) -> Status:
        """Make the first step, by implicit Euler: the equation is singular at the start."""
        points = self.place(self.theta, 0.0, self.draw())
        equation, new = self._euler(points, self.length)
        rejected, error = 0, np.nan
        while self.length >= SMALLEST * self.end:
            half_equation, half = self._euler(points, self.length / 2)
            # The error of the step is its length times half the change of the velocity along it.
            # The velocities of the whole and the half step differ by half of that change.
            change = new - self.theta - 2 * (half - self.theta)
            error = float(root_mean_square(equation.system.linearisation.times(change)))
            if error <= _FIRST_FRACTION * self.budget.total:
                length, slope = self.length, (new - self.theta) / self.length
                forcing = float(root_mean_square(equation.system.rows.forcing))
                # Points need no weights: the density is nearly normal, and none are far out.
                self._evaluate_held_out(equation, forcing, self._held_out_points())
                self.velocity = slope
                self.move(new, length, (slope, slope))
                self.length = self.next_length(length, error)
                self._record(length, forcing, error=error, source_gap=0.0, rejected=rejected)
                return Status.FINISHED
            rejected += 1
            self.length, equation, new = self.length / 2, half_equation, half
        return diagnosis(self.history) if np.isfinite(error) else Status.NOT_FINITE

    def _euler(self, points: Points, length: float) -> tuple[_Linearised, Parameters]:
        """Return the equation of an implicit Euler step from clock 0, and its first iterate."""
        equation = self._linearised(self.theta, length, points, length)
        normal = equation.system.normal
        if self.negligible(float(root_mean_square(equation.system.rows.forcing))):
            return equation, self.theta
        solver = factor(normal, jnp.asarray(self.regularisation.strength))
        return equation, self.theta + length * np.asarray(solver.solve(normal.moment))

    def implicit_step(self) -> Status:
        """Make one accepted step of the ESDIRK method."""
        self.regularisation.prepare_implicit()
        points = self.place(self.theta, self.clock, self.draw())
        theta, clock = jnp.asarray(self.theta), jnp.asarray(self.clock)
        _, forcing, size = values_at(self.ansatz, theta, clock, points)
        if not np.isfinite(float(size)):
            return Status.NOT_FINITE
        # The record of the step uses these weights; the certificate uses other points.
        points = tempered(points, forcing)
        log_ratio, forcing, _ = values_at(self.ansatz, theta, clock, points)
        rejected = 0
        while self.length >= SMALLEST * self.end:
            (length,) = self.processes.agree(min(self.length, self.end - self.clock))
            attempt = self._attempt((self.theta, log_ratio, forcing), points, length, rejected)
            if attempt is None:
                self.length = length / 2
            elif self._acceptable(attempt, length):
                self._accept(attempt, length, float(root_mean_square(log_ratio)), rejected)
                return Status.FINISHED
            else:
                self.length = min(self._following_length(attempt, length), 0.7 * length)
            rejected += 1
            if self.out_of_time():
                return Status.TIME_LIMIT
        ahead = jnp.asarray(self.clock + 2 * self.length)
        _, _, size = values_at(self.ansatz, theta, ahead, points)
        return diagnosis(self.history) if np.isfinite(float(size)) else Status.NOT_FINITE

    def _allowed(self, length: float) -> float:
        """Return the error allowed in a step, by the budget or relative to the residual."""
        last = self.history[-1]
        residual = length * last.forcing * float(np.sqrt(min(last.fresh_residual, 1.0)))
        return max(self.allowed_error(length), _RESIDUAL_FRACTION * residual)

    def _allowed_interpolation(self) -> float:
        return max(self.budget.total, _INTERPOLATION_FRACTION * self.bound)

    def _acceptable(self, attempt: _Attempt, length: float) -> bool:
        return (
            attempt.error <= self._allowed(length)
            and attempt.change <= 1.3 * MOST_CHANGE
            and attempt.interpolation <= self._allowed_interpolation()
        )

    def _attempt(
        self, start: tuple[Parameters, Array, Array], points: Points, length: float, rejected: int
    ) -> _Attempt | None:
        """Attempt a step, raising the regularisation until its stages converge."""
        slope = self.prior() * 0.5**rejected
        # Linearise at the predicted midpoint of the step.
        middle = (self.theta + length / 2 * slope, self.clock + length / 2)
        first = self._linearised(*middle, points, _GAMMA * length)
        enough = _ITERATION_FRACTION * self._allowed(length)
        while True:
            strength = jnp.asarray(self.regularisation.strength)
            equation = (first.system, factor(first.system.normal, strength))
            iteration = functools.partial(self._iterate, equation, points)
            stages = solve_stages(iteration, start, self.clock, length, slope, enough)
            if stages is not None:
                sizes = self.processes.agree(
                    float(projected_size(equation, stages.embedded_error(length))),
                    float(root_mean_square(stages.log_ratio - start[1])),
                    self._interpolation_error(equation, stages, start[1], points, length),
                )
                return _Attempt(stages, first, *sizes)
            if self.out_of_time() or not self.regularisation.raise_strength():
                return None

    def _iterate(self, equation: tuple[System, Factor], points: Points, *arguments: Any) -> Iterate:
        theta, clock, weight, target, guess = map(jnp.asarray, arguments)
        return iterate(self.ansatz, theta, clock, points, equation, weight, target, guess)

    def _interpolation_error(
        self,
        equation: tuple[System, Factor],
        stages: Stages,
        start: Array,
        points: Points,
        length: float,
    ) -> float:
        """Return the error of the path at the midpoint, against dense output of the stages."""
        end = stages.thetas[-1]
        bend = self.slope_to(end, length) - (end - self.theta) / length
        theta, expected = (self.theta + end) / 2 + length / 4 * bend, stages.halfway(start, length)
        clock = jnp.asarray(self.clock + length / 2)
        log_ratio, _, _ = values_at(self.ansatz, jnp.asarray(theta), clock, points)
        return float(projected_size(equation, log_ratio - expected))

    def _linearised(
        self, theta: Parameters, clock: float, points: Points, weight: float
    ) -> _Linearised:
        """Return the linearised equation of a stage."""
        at = linearise(self.ansatz, jnp.asarray(theta), jnp.asarray(clock), points)
        return _Linearised(theta, clock, weight, system(at, jnp.asarray(weight)))

    def _accept(self, attempt: _Attempt, length: float, gap: float, rejected: int) -> None:
        # Residuals are relative to this.
        forcing = float(root_mean_square(attempt.equation.system.rows.forcing))
        if len(self.history) % _EVALUATE_EVERY == 1:
            self._evaluate_held_out(attempt.equation, forcing, self._weighted(attempt.equation))
        stages = attempt.stages
        self.velocity = (stages.thetas[-1] - self.theta) / length
        self.move_through(stages.thetas[-1], length)
        following = self._following_length(attempt, length)
        # Do not lengthen the step right after a rejection.
        self.length = min(following, length) if rejected else following
        self._record(length, forcing, error=attempt.error, source_gap=gap, rejected=rejected)
        self.regularisation.lower_strength()

    def _following_length(self, attempt: _Attempt, length: float) -> float:
        error = attempt.error * self.allowed_error(length) / self._allowed(length)
        following = self.next_length(length, error)
        following = min(following, length * MOST_CHANGE / max(attempt.change, 1e-300))
        # The interpolation error of a smooth path scales at least with the third power of the
        # length, that of scattered knots with the first. The exponent avoids oscillating lengths.
        ratio = attempt.interpolation / self._allowed_interpolation()
        following = min(following, 0.8 * length * max(ratio, 1e-6) ** -0.25)
        if attempt.stages.iterations > _MANY:
            following = min(following, length)
        if attempt.stages.iterations > _TOO_MANY:
            following = min(following, 0.7 * length)
        return following

    def _held_out_points(self) -> Points:
        return self.place(self.theta, self.clock, self.draw(held_out=True))

    def _weighted(self, equation: _Linearised) -> Points:
        """Return held-out points with smaller weights where the forcing is unusually large."""
        points, at = self._held_out_points(), map(jnp.asarray, (equation.theta, equation.clock))
        return tempered(points, values_at(self.ansatz, *at, points)[1])

    def _evaluate_held_out(self, equation: _Linearised, forcing: float, points: Points) -> None:
        """Evaluate an equation on held-out points, for all candidates of the regularisation."""
        fitted = equation.system
        strengths = jnp.asarray(self.regularisation.candidates())
        surveyed = survey(fitted.normal, strengths, jnp.asarray(self.prior()))
        theta, clock, weight = map(jnp.asarray, (equation.theta, equation.clock, equation.weight))
        held_out = linearise(self.ansatz, theta, clock, points).implicit(weight)
        in_sample_residuals, held_out_residuals = (
            np.asarray(relative_residuals(rows, surveyed.candidates))
            for rows in (fitted.rows, held_out)
        )
        chosen = self.regularisation.choose(held_out_residuals, self.good_enough(forcing))
        in_sample = in_sample_residuals[len(in_sample_residuals) // 2]
        self.diagnostics = diagnostics_of(in_sample, chosen, surveyed)

    def _record(self, length: float, forcing: float, **figures: Any) -> None:
        strength = self.regularisation.strength
        self.record(length, forcing, self.diagnostics, regularisation=strength, **figures)
