"""Laws that are known by weighted draws only."""

from typing import Any

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ..sde.domains import AbstractDomain, Real
from .abstract_distribution import AbstractDistribution, Traits
from .weighted_points import WeightedPoints


class Particles(AbstractDistribution):
    """The law of weighted draws: it has moments and distribution functions, but no density."""

    x: Float[Array, "n d"]
    weights: Float[Array, " n"]  # add up to one
    _traits = Traits(integrable=False, cheap=False)

    @property
    def dim(self) -> int:
        return self.x.shape[1]

    @property
    def domain(self) -> tuple[AbstractDomain, ...]:
        return (Real(),) * self.dim

    def _log_probs(self, x: Float[Array, "*batch d"]) -> Float[Array, "*batch"]:
        raise ValueError(
            "A law of weighted particles has no density. For the density at a later time use "
            "`diracflow.propagate(density, law.sample(key, 4096), t)`."
        )

    def _simulated(self, points: int, key: Any) -> WeightedPoints:
        return WeightedPoints(self.x[None], self.weights[None])

    def _draw(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "*shape d"]:
        return self.x[jr.categorical(key, jnp.log(self.weights), shape=shape)]
