"""The law of a transition density at fixed time and start."""

from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..distribution.abstract_distribution import AbstractDistribution, Traits
from ..distribution.weighted_points import WeightedPoints
from ..sde.domains import AbstractDomain
from ..sde.parameters import Params
from .batching import in_batches
from .programs import images, log_probs

if TYPE_CHECKING:
    from .transition_density import AbstractTransitionDensity


class Frozen(AbstractDistribution):
    """A transition density at fixed time, start, parameters and start time."""

    density: "AbstractTransitionDensity"
    t: Float[Array, "*batch"]
    start: Float[Array, "*batch d+k"]  # followed by parameters and start time
    scalar: bool = eqx.field(static=True, default=False)

    @property
    def dim(self) -> int:
        return self.density.dim

    @property
    def noise_dim(self) -> int:
        return self.density.noise_dim

    @property
    def domain(self) -> tuple[AbstractDomain, ...]:
        return self.density.domain

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return np.broadcast_shapes(self.t.shape, self.start.shape[:-1])

    @property
    def x0(self) -> Float[Array, "*batch d"]:
        """The start."""
        return self._states(self.start[..., : self.dim])

    @property
    def params(self) -> Params:
        """The parameters by name."""
        return self.density._keywords(self.start[..., self.dim :])["params"]

    @property
    def start_time(self) -> Float[Array, "*batch"] | None:
        """The start time, if the density depends on it."""
        return self.density._keywords(self.start[..., self.dim :])["start_time"]

    @property
    def _scalar(self) -> bool:
        return self.scalar

    @property
    def _traits(self) -> Traits:
        density = self.density
        # In one dimension a smooth invertible map is monotone.
        monotone = density.dim == density.noise_dim == 1 and not density.averages
        return Traits(monotone, cheap=not density.averages, smooth=density.pathwise)

    def _log_probs(self, x: Float[Array, "*batch d"]) -> Float[Array, "*batch"]:
        return in_batches(log_probs, self.density, self.t, x, self.start)

    def _images(self, noise: Float[Array, "*batch m"]) -> Float[Array, "*batch d"]:
        return in_batches(images, self.density, self.t, noise, self.start)

    def _draw(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "*shape d"]:
        self.density._require_samples(self.start)
        return super()._draw(key, shape)

    def _simulated(self, points: int, key: Any) -> WeightedPoints:
        self.density._require_samples(self.start)
        x, weights = super()._simulated(points, key)
        traced = any(isinstance(a, jax.core.Tracer) for a in jax.tree.leaves(self))
        if traced and not self.density.pathwise:
            # Draws do not move with the arguments; their weights do.
            x = jax.lax.stop_gradient(x)
            values = self._log_probs(x)
            weights = weights * jnp.exp(values - jax.lax.stop_gradient(values))
        return WeightedPoints(x, weights)
