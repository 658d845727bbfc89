"""Parameters that rest, where the source is the density itself, as for linear equations."""

import jax.numpy as jnp
import numpy as np

from ..flow.ansatz import StandardisedAnsatz
from ..galerkin.assembly import source_forcings
from ..galerkin.collocation import Points
from ..galerkin.velocity import ROUNDING
from .loop import TimeLoop

# Clocks at which the source is looked at. The certificate looks at three between any two of them.
_LOOKS = 24


class RestingLoop(TimeLoop):
    """A loop that may go to the horizon at once."""

    ansatz: StandardisedAnsatz

    def rest(self) -> bool:
        """Go to the horizon with the flow at the identity, if the source has nothing to learn.

        Neither Jacobians nor least squares are needed to see that.
        """
        draws = self.draw()
        points = Points(draws.x0, draws.noise, draws.weight, draws.layout)
        clocks = np.geomspace(self.length, self.end, _LOOKS)
        forcings = np.asarray(source_forcings(self.ansatz, jnp.asarray(clocks), points))
        # NaN is not negligible.
        if not all(map(self.negligible, forcings)):
            return False
        still = np.zeros_like(self.theta)
        for clock, forcing in zip(clocks, forcings, strict=True):
            length = float(clock) - self.clock
            self.move(self.theta, length, (still, still))
            self._record_rest(length, float(forcing))
        return True

    def _record_rest(self, length: float, forcing: float) -> None:
        left = float(forcing >= ROUNDING)  # all of it, if it is more than rounding
        self.record(
            length,
            forcing,
            left,
            error=0.0,
            residual=left,
            regularisation=self.regularisation.value,
            rank=0.0,
            condition=1.0,
            source_gap=0.0,
            rejected=0,
        )
