"""Explicit steps as long as they last, then implicit ones; none where the source is exact.

An explicit step costs less, and follows the parameters most closely. Where explicit steps become
too short to reach the horizon, as at the parting of ways in a double well, implicit ones go on:
they are longer, with as much regularisation as their iterations need to converge.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ..galerkin.velocity import Velocity
from .explicit_loop import ExplicitLoop
from .explicit_step import Step
from .implicit_loop import ImplicitLoop
from .resting_loop import RestingLoop
from .status import Status

# Explicit steps go on as long as all of them, those made and those ahead, are few or take at most
# so many operations: in two dimensions some 200 steps. (Beneš takes 150. On a double well in the
# plane the number ahead does not fall while steps are made.) An implicit step differentiates all
# scores along every dimension, an explicit one does not: on Beneš in ten dimensions 25 s against
# 4 s. So from four dimensions on more steps are few, in proportion to the dimension.
_FEW, _AFFORDABLE = 100, 4e11
# Near the start, up to this share of the clock, steps are short for a while on every equation.
_EARLY = 0.03
# Steps in a row beyond that, after which explicit steps end.
_PATIENCE = 10


class SwitchingLoop(RestingLoop, ExplicitLoop, ImplicitLoop):
    """A loop that leaves explicit steps where they fail, and makes none where none are needed."""

    CARRIED = (*dict.fromkeys(ExplicitLoop.CARRIED + ImplicitLoop.CARRIED), "short_steps")
    short_steps = 0  # in a row, so far

    def advance(self) -> Status:
        if self.clock == 0:
            if self.rest():
                return Status.FINISHED
            if self.layout.mesh is not None:
                return self.begin()  # devices must meet in the same order, so in one thread
            with ThreadPoolExecutor(1) as pool:
                # Compiled at the same time, the velocity costs less of a wait.
                pool.submit(self.compilation())
                return self.begin()
        if self.short_steps >= _PATIENCE:
            return self.implicit_step()
        return self.explicit_step()

    def accept(self, step: Step, start: Velocity, length: float, rejected: int) -> None:
        super().accept(step, start, length, rejected)
        samples = self.plan.samples
        # Steps grow with the clock.
        ahead = np.log(self.end / self.clock) / np.log1p(length / self.clock)
        steps = len(self.history) + ahead
        few = _FEW * max(1.0, self.ansatz.source.sde.dim / 4)
        affordable = steps <= few or steps * samples * len(self.theta) ** 2 <= _AFFORDABLE
        early = self.clock < _EARLY * self.end
        self.short_steps = 0 if affordable or early else self.short_steps + 1
