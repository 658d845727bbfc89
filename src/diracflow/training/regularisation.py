r"""Adaptive choice of the regularisation $\lambda$, by held-out residuals.

The in-sample residual decreases with $\lambda$, because small values fit the noise of the points.
Therefore the velocity at the end of each step is computed for three values from the same normal
equations, and they are compared on the points of the next step, which are held out.

There are two refinements. Among values whose residual contributes less than the error budget, the
largest is chosen, because stronger regularisation gives smoother paths and longer steps. Because
residuals on a single set of points are noisy, the value changes only after another one has been
better for several steps.
"""

import numpy as np

# Ratio of neighbouring candidate values.
_RATIO = 4.0
# Smaller values reduce the residuals further, but make the path of the parameters rough and the
# steps short. On Beneš, with an earlier flow, a lower bound of 1e-12 took 264 steps (tolerance
# 1.5e-3) and gave an error of 1.1e-7 at the horizon; 1e-8 took 143 steps (2e-3) and gave 9.1e-8.
_SMALLEST, _LARGEST = 1e-8, 1e-2
# Initial value of the search.
_FIRST = 1e-6
# Smallest and largest strength of implicit steps and of the first step, and the factor by which it
# is raised. At the start, parameters move fast in directions that hardly change the density. With
# less regularisation long steps overfit: on a double well in the plane, 4e-6 gave held-out
# residuals a hundred times larger, and a forcing of 100 at some points.
_IMPLICIT_LEAST, _IMPLICIT_MOST, _RAISE = 1e-4, 1e-3, 16.0
# Weight of the evidence of earlier steps, and the evidence at which the value changes.
_MEMORY, _THRESHOLD = 0.7, 0.1


class Regularisation:
    """A value that moves to the smallest held-out residual, or a fixed value."""

    def __init__(self, fixed: float | None):
        self.value = _FIRST if fixed is None else fixed
        self._fixed = fixed is not None
        self._evidence = np.zeros(3)
        self._raised = _IMPLICIT_LEAST

    @property
    def strength(self) -> float:
        """The regularisation in use: `value`, or more if iterations need it to converge."""
        return max(self.value, self._raised)

    def prepare_implicit(self) -> None:
        """Raise `value` to the smallest strength of implicit steps, so that this is evaluated."""
        if not self._fixed:
            self.value = max(self.value, _IMPLICIT_LEAST)

    def raise_strength(self) -> bool:
        """Raise the strength after iterations diverged; return `False` at the largest one."""
        if self.strength >= _IMPLICIT_MOST:
            return False
        self._raised = min(_RAISE * self.strength, _IMPLICIT_MOST)
        return True

    def lower_strength(self) -> None:
        """Lower the strength towards its smallest value, after an accepted step."""
        self._raised = max(self._raised / 4, _IMPLICIT_LEAST)

    def candidates(self) -> np.ndarray:
        """Return the candidates at the end of a step: below, at and above the current value.

        A fixed value is the only candidate, even outside the bounds of the search.
        """
        if self._fixed:
            return np.array([self.value])
        return np.clip(self.value * np.array([1 / _RATIO, 1.0, _RATIO]), _SMALLEST, _LARGEST)

    def choose(self, residuals: np.ndarray, enough: float) -> float:
        """Choose a value by held-out residuals of `candidates`; return that of the current one.

        Residuals below `enough` need not decrease further.
        """
        current = float(residuals[len(residuals) // 2])
        if len(residuals) < 3 or not np.all(np.isfinite(residuals)):
            return current
        logs = np.log(np.maximum(residuals, 1e-300))
        self._evidence = _MEMORY * self._evidence + (1 - _MEMORY) * (logs - logs[1])
        if residuals[2] <= enough:
            move = 2
        elif residuals[1] <= enough:
            move = 1
        else:
            move = int(np.argmin(self._evidence))
            move = move if self._evidence[move] < -_THRESHOLD else 1
        if move != 1:
            self.value = float(self.candidates()[move])
            self._evidence = np.zeros(3)
        return current
