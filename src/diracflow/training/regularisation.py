r"""The choice of the regularisation, by residuals on fresh points.

In-sample residuals fall as $\lambda$ does, down to the noise of the points. So at the end of each
step the velocity is solved for with three values from the same normal equations, and the first
points of the next step, which none of them has seen, say which is best.

Two refinements. A residual that costs less than the budget for the whole horizon is good enough:
then the largest such value is taken, because parameters that are regularised more follow smoother
paths, in longer steps. And since residuals on one set of points are noisy, a value is left for
another only when that has been better for some steps.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

# Neighbouring values differ by this factor.
_RUNG = 4.0
# Below the smallest, residuals still fall, but parameters take paths so rough that steps shorten:
# on Beneš, with an earlier flow, a bound of 1e-12 took 264 steps (tolerance 1.5e-3) where this one
# took 143 (2e-3), for 1.1e-7 against 9.1e-8 at the horizon.
_SMALLEST, _LARGEST = 1e-8, 1e-2
# Where the search begins.
_FIRST = 1e-6
# Lifted values: where training begins, when parameters move fast in directions that the density
# hardly notices, and as long as steps are implicit; and at most. Less lets long steps fit their own
# points: on a double well in the plane, with 4e-6, residuals on fresh points were a hundred times
# larger, and the forcing rose to 100 at some of them.
_LIFTED_FIRST, _LIFTED_MOST, _LIFT = 1e-4, 1e-3, 16.0
# How much of the evidence of earlier steps is kept, and how much of it makes a case.
_MEMORY, _CASE = 0.7, 0.1


class Regularisation:
    """A value that moves to where fresh residuals are smallest, or a fixed one."""

    def __init__(self, fixed: float | None):
        self.value = _FIRST if fixed is None else fixed
        self._fixed = fixed is not None
        self._evidence = np.zeros(3)
        self._lifted = _LIFTED_FIRST

    def state(self) -> dict[str, Any]:
        """What has been learned so far, by names."""
        return {
            "regularisation": self.value,
            "evidence": self._evidence,
            "lifted": self._lifted,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what another has learned."""
        self.value, self._evidence = state["regularisation"], state["evidence"]
        self._lifted = state["lifted"]

    @property
    def strength(self) -> float:
        """The value in force: the present one, or more where iterations need it."""
        return max(self.value, self._lifted)

    def settle(self) -> None:
        """Before an implicit step: judge on fresh points what is in force, not what it exceeds."""
        if not self._fixed:
            self.value = max(self.value, _LIFTED_FIRST)

    def lift(self) -> bool:
        """Raise the strength after iterations that did not converge; whether there was room."""
        if self.strength >= _LIFTED_MOST:
            return False
        self._lifted = min(_LIFT * self.strength, _LIFTED_MOST)
        return True

    def relax(self) -> None:
        """Take back some of what was lifted, after a step."""
        self._lifted = max(self._lifted / 4, _LIFTED_FIRST)

    def spread(self) -> np.ndarray:
        """The values to try at the end of a step: below, at and above the present one.

        A fixed value is tried alone, even beyond the bounds of the search.
        """
        if self._fixed:
            return np.array([self.value])
        return np.clip(self.value * np.array([1 / _RUNG, 1.0, _RUNG]), _SMALLEST, _LARGEST)

    def choose(self, fresh_residuals: np.ndarray, enough: float) -> float:
        """Learn from the residuals of the values tried; returns that of the present one.

        A residual of `enough` or less is good enough.
        """
        present = float(fresh_residuals[len(fresh_residuals) // 2])
        if len(fresh_residuals) == 3 and np.all(np.isfinite(fresh_residuals)):
            self._move(fresh_residuals, enough)
        return present

    def _move(self, residuals: np.ndarray, enough: float) -> None:
        logs = np.log(np.maximum(residuals, 1e-300))
        self._evidence = _MEMORY * self._evidence + (1 - _MEMORY) * (logs - logs[1])
        if residuals[2] <= enough:
            move = 2
        elif residuals[1] <= enough:
            move = 1
        else:
            move = int(np.argmin(self._evidence))
            move = move if self._evidence[move] < -_CASE else 1
        if move != 1:
            self.value = float(self.spread()[move])
            self._evidence = np.zeros(3)
