r"""An SDE in coordinates that range over all of $\mathbb{R}^d$.

Component by component $Y = \varphi(X)$, with the maps of the domain. By Itô's formula
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

from .conditioning import given
from .domains import AbstractDomain, Real
from .laws import AbstractLaw
from .parameters import Params
from .sde import SDE

# Draws of the starts to which maps are fitted.
_DRAWS = 256


class Chart(eqx.Module):
    """An SDE of the user's, and the map of each component to the real line."""

    sde: SDE
    maps: tuple[AbstractDomain, ...]

    @property
    def plain(self) -> bool:
        """Whether all components range over the whole line already."""
        return all(isinstance(part, Real) for part in self.maps)

    def equation(self) -> SDE:
        """The SDE of the mapped state."""
        if self.plain:
            return self.sde
        coefficients = Partial(_drift, self), Partial(_diffusion, self)
        return SDE(*coefficients, self.sde.dim, params=self.sde.params)

    def law(self, law: AbstractLaw) -> AbstractLaw:
        """The law of the mapped state."""
        return law if self.plain else MappedLaw(law, self)

    def to_real(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """The coordinates of one state inside the domain."""
        return self._each("to_real", x)

    def from_real(self, y: Float[Array, " d"]) -> Float[Array, " d"]:
        """The state with some coordinates, strictly inside the domain."""
        return self._each("from_real", y)

    def log_slope(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """Logarithm of the determinant of `to_real`'s derivative."""
        return jnp.sum(self._each("log_slope", x))

    def contains(self, x: Float[ArrayLike, "*batch d"]) -> Bool[Array, "*batch"]:
        """Which states lie inside the domain."""
        return jnp.all(self._each("contains", jnp.asarray(x)), axis=-1)

    def end(self, x: Float[Array, " d"]) -> tuple[Float[Array, " d"], Float[Array, ""]]:
        """Coordinates of a state, and `log_slope`; this is -inf outside the domain."""
        if self.plain:
            return x, jnp.zeros((), x.dtype)
        inside = self.contains(x)
        # Also the derivatives must be finite outside.
        safe = jnp.where(inside, x, jnp.asarray([part.centre for part in self.maps], x.dtype))
        return self.to_real(safe), jnp.where(inside, self.log_slope(safe), -jnp.inf)

    def start(self, given: Float[Array, " d+k"]) -> Float[Array, " d+k"]:
        """Coordinates of a start, with what follows it unchanged; NaN outside the domain."""
        if self.plain:
            return given
        x0, rest = jnp.split(given, [len(self.maps)])
        y0 = jnp.where(self.contains(x0), self.to_real(x0), jnp.nan)
        return jnp.concatenate([y0, rest])

    def _each(self, method: str, values: Array) -> Array:
        first = self.maps[0]
        if all(part.describe() == first.describe() for part in self.maps):
            return getattr(first, method)(values)
        columns = [getattr(part, method)(values[..., i]) for i, part in enumerate(self.maps)]
        return jnp.stack(columns, axis=-1)


@eqx.filter_jit
def start_coordinates(chart: Chart, x0: Float[ArrayLike, "*batch d"]) -> Float[Array, "*batch d"]:
    """`Chart.start` of many starts."""
    return jnp.vectorize(chart.start, signature="(d)->(d)")(jnp.asarray(x0))


def plain_chart(sde: SDE) -> Chart:
    """An SDE whose state is its own coordinates, whatever its domain."""
    return Chart(sde, (Real(),) * sde.dim)


def chart_for(sde: SDE, law: AbstractLaw, start_time: float | None) -> Chart:
    """The chart whose maps suit the noise over the starts.

    Draws of `law` have parameters and the time of the start behind them, where these vary.
    """
    chart = Chart(sde, sde.domain)
    if chart.plain:
        return chart

    def noise(g: Array) -> Array:
        member, x, time = given(sde, start_time, g)
        return jnp.linalg.norm(member.diffusion(time, x), axis=1)

    draws = law.sample(jr.key(0), (_DRAWS,))
    sizes, x = np.asarray(jax.vmap(noise)(draws)), np.asarray(draws)[:, : sde.dim]
    columns = zip(sde.domain, x.T, sizes.T, strict=True)
    return Chart(sde, tuple(part.fitted(*column) for part, *column in columns))


class MappedLaw(AbstractLaw):
    """A law of states, seen in the coordinates of a chart; what follows them is left alone."""

    states: AbstractLaw
    chart: Chart

    @property
    def dim(self) -> int | None:
        return self.states.dim

    def expand(self, dim: int) -> "MappedLaw":
        return MappedLaw(self.states.expand(dim), self.chart)

    def from_uniform(self, u: Float[Array, " d"]) -> Float[Array, " d"]:
        return self._mapped(self.chart.to_real, self.states.from_uniform(u))

    def to_normal(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return self.states.to_normal(self._mapped(self.chart.from_real, x))

    def _log_prob(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        state = self._mapped(self.chart.from_real, x)
        return self.states._log_prob(state) - self.chart.log_slope(state[: len(self.chart.maps)])

    def describe(self) -> dict:
        return self.states.describe()

    def _mapped(self, mapping: Callable[[Array], Array], x: Array) -> Array:
        state, rest = jnp.split(x, [len(self.chart.maps)])
        return jnp.concatenate([mapping(state), rest])


def _drift(chart: Chart, t: Array, y: Array, *params: Params) -> Float[Array, " d"]:
    x, member = chart.from_real(y), chart.sde.at(*params) if params else chart.sde
    slope, curvature = _derivatives(chart, x)
    variances = jnp.sum(member.diffusion(t, x) ** 2, axis=1)
    return slope * member.drift(t, x) + 0.5 * curvature * variances


def _diffusion(chart: Chart, t: Array, y: Array, *params: Params) -> Float[Array, "d m"]:
    x, member = chart.from_real(y), chart.sde.at(*params) if params else chart.sde
    return _derivatives(chart, x)[0][:, None] * member.diffusion(t, x)


def _derivatives(chart: Chart, x: Array) -> tuple[Array, Array]:
    """First and second derivatives of the maps: each of its own component alone."""
    one = jnp.ones_like(x)

    def slope(x: Array) -> Array:
        return jax.jvp(chart.to_real, (x,), (one,))[1]

    return jax.jvp(slope, (x,), (one,))
