"""Transition densities in the coordinates of a chart."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..sde.chart import Chart, plain_chart
from ..sde.parameters import Bounds
from .transition_density import AbstractTransitionDensity


class MappedDensity(AbstractTransitionDensity):
    """The density of the coordinates of a state, given the coordinates of its start."""

    density: AbstractTransitionDensity  # of states
    mapping: Chart  # not `chart`, which densities of states have
    dim: int = eqx.field(static=True)
    noise_dim: int = eqx.field(static=True)
    horizon: float = eqx.field(static=True)

    def __init__(self, density: AbstractTransitionDensity, mapping: Chart):
        self.density, self.mapping, self.params = density, mapping, density.params
        self.dim, self.noise_dim = density.dim, density.noise_dim
        self.horizon = density.horizon

    @property
    def pathwise(self) -> bool:
        return self.density.pathwise

    @property
    def start_time(self) -> float | None:
        return self.density.start_time

    @property
    def start_time_bounds(self) -> tuple[float, float]:
        return self.density.start_time_bounds

    @property
    def param_bounds(self) -> Bounds:
        return self.density.param_bounds

    def _at_time(self, t: Float[Array, ""]) -> Any:
        return self.density._at_time(t)

    def _log_prob(
        self, state: Any, x: Float[Array, " d"], x0: Float[Array, " d+k"]
    ) -> Float[Array, ""]:
        end = self.mapping.from_real(x)
        return self.density._log_prob(state, end, self._states(x0)) - self.mapping.log_slope(end)

    def _from_noise(
        self, state: Any, noise: Float[Array, " m"], x0: Float[Array, " d+k"]
    ) -> Float[Array, " d"]:
        return self.mapping.to_real(self.density._from_noise(state, noise, self._states(x0)))

    def _states(self, x0: Float[Array, " d+k"]) -> Float[Array, " d+k"]:
        start, rest = jnp.split(x0, [self.dim])
        return jnp.concatenate([self.mapping.from_real(start), rest])


def in_coordinates(density: AbstractTransitionDensity, chart: Chart) -> AbstractTransitionDensity:
    """Return a density of states in the coordinates of a chart.

    A density that has this `chart` works in its coordinates anyway. It loses the chart, so that no
    coordinates are mapped to states and back.
    """
    if chart.plain:
        return density
    if getattr(density, "chart", None) is not chart:
        return MappedDensity(density, chart)
    plain = plain_chart(chart.sde)
    return eqx.tree_at(lambda d: d.chart, density, plain, is_leaf=lambda a: isinstance(a, Chart))
