"""Many starts at once, led up to the last of the legs of one time.

Laws and draws that are propagated have their mean taken over starts, at many points: so their ways
up to the last leg are made once, and not for each point.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from ..sde.chart import Chart
from ..transition.broadcast import CHUNK
from ..transition.transition_density import AbstractLastLeg, AbstractTransitionDensity, log_probs
from .lattice import Lattice, weighed
from .subintervals import Course, divided, walk

# Starts that are weighed at once: each takes a row of the lattice.
_TOGETHER = 16


class FromLattice(AbstractLastLeg):
    """The last leg from the points of a lattice, with weights for each group of starts."""

    density: AbstractTransitionDensity  # up to the end of a leg
    t: Float[Array, ""]
    points: Float[Array, "n d"]
    weights: Float[Array, "groups n"]

    @property
    def rows(self) -> int:
        return len(self.points)

    def log_probs(self, x: Float[Array, " d"]) -> Float[Array, " groups"]:
        values = log_probs(self.density, self.t, x, self.points)
        return logsumexp(values[None], axis=1, b=self.weights)


@eqx.filter_jit
def walked_starts(
    course: Course,
    chart: Chart,
    t: Float[Array, ""],
    starts: Float[Array, "groups n d+k"],
    noise: Float[Array, "groups n m"],
) -> tuple[Float[Array, ""], Float[Array, "groups n d+k"]]:
    """The length of the last leg, and where it begins for each start and its noise."""
    legs, dim = divided(course, t), chart.sde.dim

    def one(given: tuple[Array, Array]) -> Float[Array, " d+k"]:
        start, noise = given
        moved = walk(legs, noise.reshape(-1, dim), chart.start(start), legs.number - 1)
        return start.at[:dim].set(chart.from_real(moved[:dim]))

    tables = starts.reshape(-1, starts.shape[-1]), noise.reshape(-1, noise.shape[-1])
    return legs.length, jax.lax.map(one, tables, batch_size=CHUNK).reshape(starts.shape)


@eqx.filter_jit
def weighed_points(
    course: Course,
    chart: Chart,
    lattice: Lattice,
    t: Float[Array, ""],
    starts: Float[Array, "groups n d"],
) -> tuple[Float[Array, ""], Float[Array, "m d"], Float[Array, "groups m"]]:
    """The length of the last leg, the states in the lattice, their weights in each group."""
    legs = divided(course, t)
    one = lambda start: weighed(lattice, legs, chart.start(start)).weights
    weights = jax.lax.map(one, starts.reshape(-1, starts.shape[-1]), batch_size=_TOGETHER)
    means = weights.reshape(*starts.shape[:2], -1).mean(axis=1)
    return legs.length, jax.vmap(chart.from_real)(jnp.asarray(lattice.points, t.dtype)), means
