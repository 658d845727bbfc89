"""The source as a transition density: the baseline before training."""

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from ..sde.chart import Chart, plain_chart
from ..sde.domains import AbstractDomain
from ..transition.transition_density import AbstractTransitionDensity
from .gaussian_source import AbstractGaussianSource


class SourceDensity(AbstractTransitionDensity):
    """A source with the interface of a transition density.

    **Arguments:**

    - `source`: the source.
    - `horizon`: the largest time of a query.
    - `chart`: maps states of the user to those of the source; by default the identity.
    """

    source: AbstractGaussianSource
    chart: Chart
    dim: int = eqx.field(static=True)
    noise_dim: int = eqx.field(static=True)
    horizon: float = eqx.field(static=True)

    def __init__(
        self, source: AbstractGaussianSource, horizon: float = np.inf, chart: Chart | None = None
    ):
        self.source, self.horizon = source, horizon
        self.chart = plain_chart(source.sde) if chart is None else chart
        self.dim = self.noise_dim = source.sde.dim
        self.params = source.sde.params

    @property
    def domain(self) -> tuple[AbstractDomain, ...]:
        return self.chart.maps

    @property
    def start_time(self) -> float | None:
        return self.source.start_time

    def _at_time(self, t: Float[Array, ""]) -> Float[Array, ""]:
        return t

    def _log_prob(self, state: Array, x: Array, x0: Array) -> Float[Array, ""]:
        y, log_slope = self.chart.end(x)
        return self.source.log_prob(y, state, self.chart.start(x0)) + log_slope

    def _from_noise(self, state: Array, noise: Array, x0: Array) -> Float[Array, " d"]:
        return self.chart.from_real(self.source.from_noise(noise, state, self.chart.start(x0)))
