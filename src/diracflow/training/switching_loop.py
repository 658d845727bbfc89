"""A loop that uses explicit steps, then implicit ones, and no steps where the source is exact.

An explicit step costs less, and follows the parameters most closely. Where explicit steps become
too short to reach the horizon, as where the density of a double well splits, implicit steps take
over: they are longer, with the regularisation that their iterations need to converge.
"""

from concurrent.futures import ThreadPoolExecutor

import jax.numpy as jnp
import numpy as np

from ..galerkin.collocation import Points
from ..galerkin.rows import source_forcings
from ..galerkin.velocity import ROUNDING, Velocity
from .explicit_loop import ExplicitLoop, Step
from .implicit_loop import ImplicitLoop
from .state import Status

# Clocks at which the source is tested. The certificate evaluates three times between any two.
_SOURCE_TESTS = 24
# Explicit steps are used while the expected total number of steps is below `_FEW`, or their cost
# below `_AFFORDABLE` operations, which is about 200 steps in two dimensions. (Beneš takes 150. On a
# double well in the plane the expected number of remaining steps does not decrease.) An implicit
# step differentiates all scores in every dimension, an explicit one does not: on Beneš in ten
# dimensions 25 s against 4 s. So above four dimensions `_FEW` is proportional to the dimension.
_FEW, _AFFORDABLE = 100, 4e11
# Near the start, up to this fraction of the clock, steps are short for every equation.
_EARLY = 0.03
# Number of consecutive short steps after which explicit steps end.
_PATIENCE = 10


class SwitchingLoop(ExplicitLoop, ImplicitLoop):
    """A loop of explicit steps that switches to implicit ones where they become too short."""

    CARRIED = (*dict.fromkeys(ExplicitLoop.CARRIED + ImplicitLoop.CARRIED), "short_steps")
    short_steps = 0  # consecutive ones so far

    def advance(self) -> Status:
        if self.clock == 0:
            if self.skip_exact_source():
                return Status.FINISHED
            if self.layout.mesh is not None:
                return self.begin()  # collectives must run in the same order on all devices
            with ThreadPoolExecutor(1) as pool:
                # The velocity is compiled during the first step.
                pool.submit(self.compilation())
                return self.begin()
        if self.short_steps >= _PATIENCE:
            return self.implicit_step()
        return self.explicit_step()

    def accept(self, step: Step, start: Velocity, length: float, rejected: int) -> None:
        super().accept(step, start, length, rejected)
        samples = self.plan.samples
        # The prediction assumes lengths proportional to the clock.
        ahead = np.log(self.end / self.clock) / np.log1p(length / self.clock)
        steps = len(self.history) + ahead
        few = _FEW * max(1.0, self.ansatz.source.sde.dim / 4)
        affordable = steps <= few or steps * samples * len(self.theta) ** 2 <= _AFFORDABLE
        early = self.clock < _EARLY * self.end
        self.short_steps = 0 if affordable or early else self.short_steps + 1

    def skip_exact_source(self) -> bool:
        """Move to the horizon with the flow at the identity, if the source is exact.

        This is the case for linear equations. The test needs neither Jacobians nor least squares.
        """
        draws = self.draw()
        points = Points(draws.x0, draws.noise, draws.weight, draws.layout)
        clocks = np.geomspace(self.length, self.end, _SOURCE_TESTS)
        forcings = np.asarray(source_forcings(self.ansatz, jnp.asarray(clocks), points))
        # NaN is not negligible.
        if not all(map(self.negligible, forcings)):
            return False
        zero = np.zeros_like(self.theta)
        for clock, forcing in zip(clocks, map(float, forcings), strict=True):
            length = float(clock) - self.clock
            self.move(self.theta, length, (zero, zero))
            residual = float(forcing >= ROUNDING)  # the flow explains nothing of the forcing
            self.record(
                length,
                forcing,
                residual,
                error=0.0,
                residual=residual,
                regularisation=self.regularisation.value,
                rank=0.0,
                condition=1.0,
                source_gap=0.0,
                rejected=0,
            )
        return True
