"""Chapman--Kolmogorov composition of a base density, in the coordinates of a chart."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..sde.chart import Chart
from ..transition.broadcast import CHUNK
from ..transition.transition_density import AbstractTransitionDensity
from .lattice import Lattice, weighted
from .subintervals import (
    Beginnings,
    Division,
    Subintervals,
    divided,
    log_mixture,
    nodes,
    simulate,
    simulated,
)

# Starts whose weights are computed at once: each takes a row of the lattice.
_TOGETHER = 16


class Composition(NamedTuple):
    """A base density, the division of times, and the lattice if there is one.

    Everything is in coordinates that range over the whole line.
    """

    base: AbstractTransitionDensity
    division: Division
    lattice: Lattice | None

    def divided(self, t: Float[Array, ""]) -> Subintervals:
        """Divide a time into subintervals."""
        return divided(self.base, self.division, t)

    def beginnings(self, times: Subintervals, start: Float[Array, " d+k"]) -> Beginnings:
        """Return weighted points at which the last subinterval begins."""
        if self.lattice is None:
            noise = nodes(self.division.most, self.base.noise_dim)
            return simulated(self.base, times, start, noise)
        return weighted(self.base, times, start, self.lattice)

    def log_prob(
        self, times: Subintervals, y: Float[Array, " d"], start: Float[Array, " d+k"]
    ) -> Float[Array, ""]:
        """Return the log-density at one point."""
        one = lambda y, start: self.base._log_prob(times.outer, y, start)
        several = lambda y, start: log_mixture(self.base, times, y, self.beginnings(times, start))
        return jax.lax.cond(times.number == 1, one, several, y, start)

    def simulated_starts(
        self,
        chart: Chart,
        t: Float[Array, ""],
        starts: Float[Array, "groups n d+k"],
        noise: Float[Array, "groups n m"],
    ) -> tuple[Float[Array, ""], Float[Array, "groups n d+k"]]:
        """Return the length of the last subinterval, and where it begins from each start.

        Starts and results are states of the chart.
        """
        times, dim = self.divided(t), self.base.dim

        def one(row: tuple[Array, Array]) -> Float[Array, " d+k"]:
            start, noise = row
            rows = noise.reshape(-1, self.base.noise_dim)
            moved = simulate(self.base, times, rows, chart.start(start), times.number - 1)
            return start.at[:dim].set(chart.from_real(moved[:dim]))

        tables = starts.reshape(-1, starts.shape[-1]), noise.reshape(-1, noise.shape[-1])
        return times.length, jax.lax.map(one, tables, batch_size=CHUNK).reshape(starts.shape)

    def weighted_points(
        self, chart: Chart, t: Float[Array, ""], starts: Float[Array, "groups n d"]
    ) -> tuple[Float[Array, ""], Float[Array, "m d"], Float[Array, "groups m"]]:
        """Return the length of the last subinterval, lattice points, and weights of each group.

        Starts and points are states of the chart.
        """
        times, lattice = self.divided(t), self.lattice
        assert lattice is not None
        one = lambda start: weighted(self.base, times, chart.start(start), lattice).weights
        weights = jax.lax.map(one, starts.reshape(-1, starts.shape[-1]), batch_size=_TOGETHER)
        means = weights.reshape(*starts.shape[:2], -1).mean(axis=1)
        points = jnp.asarray(lattice.points, t.dtype)
        return times.length, jax.vmap(chart.from_real)(points), means
