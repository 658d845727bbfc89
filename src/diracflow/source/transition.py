"""The source as a transition density of its own: the baseline of zero learning."""

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from ..problem.transition import AbstractTransitionDensity
from .gaussian import AbstractGaussianSource


class SourceDensity(AbstractTransitionDensity):
    """A source, queried like any other transition density."""

    source: AbstractGaussianSource
    dim: int = eqx.field(static=True)
    noise_dim: int = eqx.field(static=True)
    horizon: float = eqx.field(static=True)

    def __init__(self, source: AbstractGaussianSource, horizon: float = np.inf):
        self.source, self.horizon = source, horizon
        self.dim = self.noise_dim = source.sde.dim
        self.params = source.sde.params

    @property
    def start_time(self) -> float | None:
        return self.source.start_time

    def _at_time(self, t: Float[Array, ""]) -> Float[Array, ""]:
        return t

    def _log_prob(
        self, state: Float[Array, ""], x: Float[Array, " d"], x0: Float[Array, " d+k"]
    ) -> Float[Array, ""]:
        return self.source.log_prob(x, state, x0)

    def _from_noise(
        self, state: Float[Array, ""], noise: Float[Array, " d"], x0: Float[Array, " d+k"]
    ) -> Float[Array, " d"]:
        return self.source.from_noise(noise, state, x0)
