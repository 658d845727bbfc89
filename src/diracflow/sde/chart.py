r"""Charts: coordinates of an SDE that range over all of $\mathbb{R}^d$.

The maps of the domain act component by component, $Y = \varphi(X)$. By Itô's formula
$$dY_i = (\varphi_i' b_i + \tfrac12\varphi_i''\Sigma_{ii})\,dt + \varphi_i'\sigma_i\,dW,$$
and the density of $X$ is that of $Y$ times $\prod_i\varphi_i'$. The relative rate at which the
Fokker--Planck equation changes a density is the same in both, and so is total variation.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, ArrayLike, Bool, Float

from .delegation import delegated
from .domains import AbstractDomain, Real, each
from .fingerprint import coefficients
from .laws import AbstractLaw
from .parameters import Params
from .sde import SDE

# Draws of the start law to which maps are fitted.
_DRAWS = 256


class Chart(eqx.Module):
    """An SDE and the map of each of its components to the real line."""

    sde: SDE
    maps: tuple[AbstractDomain, ...]

    @property
    def plain(self) -> bool:
        """`True` if all components range over the whole line, so that the chart is the identity."""
        return all(isinstance(part, Real) for part in self.maps)

    def equation(self) -> SDE:
        """Return the SDE of the mapped state."""
        if self.plain:
            return self.sde
        coefficients = Partial(_drift, self), Partial(_diffusion, self)
        return SDE(*coefficients, self.sde.dim, params=self.sde.params)

    def law(self, law: AbstractLaw) -> AbstractLaw:
        """Return the law of the mapped state."""
        return law if self.plain else MappedLaw(law, self)

    def state_law(self, law: AbstractLaw) -> AbstractLaw:
        """Return the law of the state, given that of its coordinates."""
        return law if self.plain else CoordinateLaw(law, self.maps)

    def to_real(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return the coordinates of one state inside the domain."""
        return each(self.maps, "to_real", x)

    def from_real(self, y: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return the state with the coordinates `y`, strictly inside the domain."""
        return each(self.maps, "from_real", y)

    def log_slope(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """Return the log-determinant of the derivative of `to_real`."""
        return jnp.sum(each(self.maps, "log_slope", x))

    def contains(self, x: Float[ArrayLike, "*batch d"]) -> Bool[Array, "*batch"]:
        """Return `True` for the states that lie inside the domain."""
        return jnp.all(each(self.maps, "contains", jnp.asarray(x)), axis=-1)

    def end(self, x: Float[Array, " d"]) -> tuple[Float[Array, " d"], Float[Array, ""]]:
        """Return the coordinates of a state, and `log_slope`, which is -inf outside the domain."""
        if self.plain:
            return x, jnp.zeros((), x.dtype)
        inside = self.contains(x)
        # Values outside must be finite for derivatives to be finite.
        safe = jnp.where(inside, x, jnp.asarray([part.centre for part in self.maps], x.dtype))
        return self.to_real(safe), jnp.where(inside, self.log_slope(safe), -jnp.inf)

    def start(self, g: Float[Array, " d+k"]) -> Float[Array, " d+k"]:
        """Return a conditioning vector with the start in coordinates; NaN outside the domain."""
        if self.plain:
            return g
        x0, rest = jnp.split(g, [len(self.maps)])
        y0 = jnp.where(self.contains(x0), self.to_real(x0), jnp.nan)
        return jnp.concatenate([y0, rest])


@eqx.filter_jit
def start_coordinates(chart: Chart, x0: Float[ArrayLike, "*batch d"]) -> Float[Array, "*batch d"]:
    """Return `Chart.start` for a batch of conditioning vectors."""
    return jnp.vectorize(chart.start, signature="(d)->(d)")(jnp.asarray(x0))


def plain_chart(sde: SDE) -> Chart:
    """Return the identity chart of an SDE, regardless of its domain."""
    return Chart(sde, (Real(),) * sde.dim)


def chart_for(sde: SDE, law: AbstractLaw, start_time: float | None) -> Chart:
    """Return a chart whose maps are fitted to the noise over the starts."""
    chart = Chart(sde, sde.domain)
    if chart.plain:
        return chart
    draws = law.sample(jr.key(0), (_DRAWS,))
    _, diffusion = coefficients(sde, start_time, jnp.zeros(_DRAWS), draws)
    sizes, x = np.linalg.norm(diffusion, axis=2), np.asarray(draws)[:, : sde.dim]
    columns = zip(sde.domain, x.T, sizes.T, strict=True)
    return Chart(sde, tuple(part.fitted(*column) for part, *column in columns))


class MappedLaw(AbstractLaw):
    """The law of a conditioning vector whose start is mapped to the coordinates of a chart."""

    states: AbstractLaw
    chart: Chart

    dim = delegated("states.dim")
    describe = delegated("states.describe")

    def expand(self, dim: int) -> "MappedLaw":
        return MappedLaw(self.states.expand(dim), self.chart)

    def from_uniform(self, u: Float[Array, " d"]) -> Float[Array, " d"]:
        return self._mapped(self.chart.to_real, self.states.from_uniform(u))

    def to_normal(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return self.states.to_normal(self._mapped(self.chart.from_real, x))

    def _log_prob(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        state = self._mapped(self.chart.from_real, x)
        return self.states._log_prob(state) - self.chart.log_slope(state[: len(self.chart.maps)])

    def _mapped(self, mapping: Callable[[Array], Array], x: Array) -> Array:
        state, rest = jnp.split(x, [len(self.chart.maps)])
        return jnp.concatenate([mapping(state), rest])


class CoordinateLaw(AbstractLaw):
    """The law of a state whose coordinates under the maps of a domain have a given law."""

    coordinates: AbstractLaw
    maps: tuple[AbstractDomain, ...]

    @property
    def dim(self) -> int | None:
        return len(self.maps)

    def expand(self, dim: int) -> "CoordinateLaw":
        return self

    def from_uniform(self, u: Float[Array, " d"]) -> Float[Array, " d"]:
        return each(self.maps, "from_real", self.coordinates.from_uniform(u))

    def to_normal(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return self.coordinates.to_normal(each(self.maps, "to_real", x))

    def _log_prob(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        slopes = jnp.sum(each(self.maps, "log_slope", x))
        return self.coordinates._log_prob(each(self.maps, "to_real", x)) + slopes

    def describe(self) -> dict:
        maps = [part.describe() for part in self.maps]
        return {"law": "Coordinates", "coordinates": self.coordinates.describe(), "maps": maps}


def _drift(chart: Chart, t: Array, y: Array, *params: Params) -> Float[Array, " d"]:
    x, member = chart.from_real(y), chart.sde.at(*params) if params else chart.sde
    slope, curvature = _derivatives(chart, x)
    variances = jnp.sum(member.diffusion(t, x) ** 2, axis=1)
    return slope * member.drift(t, x) + 0.5 * curvature * variances


def _diffusion(chart: Chart, t: Array, y: Array, *params: Params) -> Float[Array, "d m"]:
    x, member = chart.from_real(y), chart.sde.at(*params) if params else chart.sde
    return _derivatives(chart, x)[0][:, None] * member.diffusion(t, x)


def _derivatives(chart: Chart, x: Array) -> tuple[Array, Array]:
    """Return the first and second derivatives of the map of each component."""
    one = jnp.ones_like(x)

    def slope(x: Array) -> Array:
        return jax.jvp(chart.to_real, (x,), (one,))[1]

    return jax.jvp(slope, (x,), (one,))
