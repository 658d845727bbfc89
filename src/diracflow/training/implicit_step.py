r"""One implicit Runge--Kutta step, in the space of log-densities.

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
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
from jaxtyping import Array, Float

from ..galerkin.implicit import Iterate

Parameters = Float[np.ndarray, " m"]

_GAMMA = float(Fraction(1767732205903, 4055673282236))
_NODES = np.array([0.0, 2 * _GAMMA, 0.6, 1.0])
_ROWS = (
    (),
    (_GAMMA,),
    (
        float(Fraction(2746238789719, 10658868560708)),
        float(Fraction(-640167445237, 6845629431997)),
    ),
    (
        float(Fraction(1471266399579, 7840856788654)),
        float(Fraction(-4482444167858, 7529755066697)),
        float(Fraction(11266239266428, 11593286722821)),
    ),
)
_EMBEDDED = (
    float(Fraction(2756255671327, 12835298489170)),
    float(Fraction(-10771552573575, 22201958757719)),
    float(Fraction(9247589265047, 10645013368117)),
    float(Fraction(2193209047091, 5459859503100)),
)
WEIGHT = _GAMMA
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
