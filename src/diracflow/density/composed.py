r"""Transition densities at long times, composed of a density at short times."""

import copy
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from ..certify.certificate import Certificate, CertificateQuery, Estimate
from ..sde.argument_checks import checked_number
from ..sde.chart import Chart
from ..sde.delegation import delegated
from ..sde.laws import AbstractLaw
from ..transition.broadcast import CHUNK
from ..transition.charted_density import in_coordinates
from ..transition.programs import StartMixture
from ..transition.transition_density import AbstractTransitionDensity
from .abstract_learned import AbstractLearnedDensity
from .composed_certificate import composed_certificate, composed_estimate
from .lattice import Lattice, lattice_for, weighted
from .subintervals import (
    ROUNDING,
    Beginnings,
    Division,
    Subintervals,
    divided,
    division,
    log_mixture,
    nodes,
    simulate,
    simulated,
)

if TYPE_CHECKING:
    from .learned import LearnedDensity, TransitionDensity

# Starts whose weights are computed at once: each takes a row of the lattice.
_TOGETHER = 16


def _known(name: str) -> Any:
    """Return a property of the base, if it has it."""
    return property(lambda density: density._of_base(name))


class ComposedDensity(AbstractLearnedDensity):
    r"""A density up to a long horizon, composed of a density `base` up to a shorter one.

    Times up to `reach` are answered by the base itself. Longer times are divided into at most
    `legs` subintervals, of length `reach` or less, and by the Chapman--Kolmogorov equation their
    density is a mixture over where the last subinterval begins. In one and two dimensions the
    mixture is taken over the points of a lattice, else over points simulated with fixed
    quasi-random noise. Coefficients of the SDE must not depend on time.

    For times of several subintervals the bound of `certificate` is the sum of the bound of the
    first, the mean bound of the later ones, and the error of the mixture. Its `samples` are those
    of the first; later ones take fewer from each of several beginnings.

    `diracflow.learn` returns a composed density if its setting `legs` exceeds one, and
    `TransitionDensity.extended` makes one of a learned density. The attributes `sde`, `starts`,
    `status`, `provenance`, ... are those of the base, if it has them; exact densities do not.

    **Arguments:**

    - `base`: the density of one subinterval, exact or learned.
    - `horizon`: the longest time.
    - `reach`: the longest subinterval; by default the horizon of the base.
    - `starts`: the law of starts for which a lattice is made, parameters included. Without it, or
        if the lattice were inaccurate or had too many points, points are simulated.
    - `lattice`: a lattice made before.

    >>> import diracflow as df
    >>> exact = df.models.ornstein_uhlenbeck(1).exact
    >>> density = df.ComposedDensity(exact, horizon=3.0, reach=1.0)
    >>> density.legs
    3
    """

    base: AbstractTransitionDensity
    lattice: Lattice | None  # in the coordinates of the chart
    legs: int = eqx.field(static=True)
    reach: float = eqx.field(static=True)
    horizon: float = eqx.field(static=True)
    dim: int = eqx.field(static=True)
    noise_dim: int = eqx.field(static=True)
    averages: ClassVar[bool] = True

    def __init__(
        self,
        base: AbstractTransitionDensity,
        horizon: float,
        *,
        reach: float | None = None,
        starts: AbstractLaw | None = None,
        lattice: Lattice | None = None,
    ):
        self.horizon = checked_number("horizon", horizon)
        self.reach = checked_number("reach", base.horizon if reach is None else reach)
        if not 0 < self.reach <= base.horizon or self.horizon <= 0:
            raise ValueError(
                f"`horizon` must be positive, and `reach` positive and at most {base.horizon:g}, "
                f"the horizon of the base; got {self.horizon:g} and {self.reach:g}."
            )
        if base.start_time is None:
            raise ValueError(
                "A density that depends on the start time cannot be composed: later subintervals "
                "start when earlier ones end. Learn it with the longer horizon."
            )
        self.base, self.params, self.lattice = base, base.params, lattice
        self.legs = division(self.horizon, self.reach).most
        self.dim, self.noise_dim = base.dim, self.legs * base.noise_dim
        if starts is not None:
            law = self.chart.law(starts.expand(base.dim) if starts.dim is None else starts)
            self.lattice = lattice_for(self._inner, self._division, law)

    pathwise = delegated("base.pathwise")
    domain = delegated("base.domain")
    start_time = delegated("base.start_time")
    param_bounds = delegated("base.param_bounds")
    _check_starts = delegated("base._check_starts")
    _outside = delegated("base._outside")
    _require_samples = delegated("base._require_samples")
    sde, scope, trajectory, provenance = map(_known, ("sde", "scope", "trajectory", "provenance"))

    @property
    def chart(self) -> Chart:
        """The coordinates in which subintervals are composed."""
        found = getattr(self.base, "chart", None)
        # Of a chart without an SDE only the maps are used.
        return Chart(None, self.base.domain) if found is None else found  # type: ignore[arg-type]

    def extended(self, horizon: float) -> "LearnedDensity":
        """Return this density up to a longer horizon, rounded up to whole subintervals.

        **Arguments:**

        - `horizon`: the longest time; a shorter one than now changes nothing.
        """
        wanted = checked_number("horizon", horizon)
        if wanted <= 0:
            raise ValueError(f"`horizon` must be positive; got {wanted:g}.")
        return self if wanted <= self.horizon else self._of_base("extended")(wanted)

    def source_only(self) -> "ComposedDensity":
        """Return the same composition of the source of the base, without its flow."""
        source, law = self._of_base("source_only")(), self.scope.law
        return ComposedDensity(source, self.horizon, reach=self.reach, starts=law)

    def with_provenance(self, **changes: Any) -> "ComposedDensity":
        """Return the same density with changed fields of `provenance`."""
        base, known = self._of_base("with_provenance")(**changes), self.lattice
        return ComposedDensity(base, self.horizon, reach=self.reach, lattice=known)

    def _without_provenance(self) -> "ComposedDensity":
        bare = copy.copy(self)
        object.__setattr__(bare, "base", self.base._without_provenance())
        return bare

    @property
    def _division(self) -> Division:
        return Division(self.reach, self.legs)

    @property
    def _inner(self) -> AbstractTransitionDensity:
        """The base in the coordinates of the chart."""
        return in_coordinates(self.base, self.chart)

    def _error_bound(self, query: CertificateQuery) -> Certificate:
        return composed_certificate(self, query)

    def _error_estimate(self, query: CertificateQuery) -> Estimate:
        return composed_estimate(self, query)

    def _of_base(self, name: str) -> Any:
        """Return an attribute of the base."""
        if hasattr(self.base, name):
            return getattr(self.base, name)
        raise AttributeError(
            f"This density is composed of a {type(self.base).__name__}, which has no "
            f"`{name.strip('_')}`; learned densities do."
        )

    def _trained(self, what: str, t: Float[ArrayLike, "*batch"]) -> "TransitionDensity":
        self._of_base("ansatz")
        known = not isinstance(t, jax.core.Tracer)
        if known and np.any(np.asarray(t, float) > self.reach * (1 + ROUNDING)):
            raise ValueError(
                f"{what} is defined for the base, up to t={self.reach:g}; later times are composed "
                f"of up to {self.legs} subintervals. Use `t <= density.reach`."
            )
        base: Any = self.base
        return base

    def _at_time(self, t: Float[Array, ""]) -> Subintervals:
        return divided(self._inner, self._division, t)

    def _log_prob(
        self, state: Subintervals, x: Float[Array, " d"], x0: Float[Array, " d+k"]
    ) -> Float[Array, ""]:
        base, (y, log_slope) = self._inner, self.chart.end(x)
        one = lambda y, start: base._log_prob(state.outer, y, start)
        several = lambda y, start: log_mixture(base, state, y, self._beginnings(state, start))
        return jax.lax.cond(state.number == 1, one, several, y, self.chart.start(x0)) + log_slope

    def _beginnings(self, times: Subintervals, start: Float[Array, " d+k"]) -> Beginnings:
        """Return weighted points at which the last subinterval begins, in coordinates."""
        if self.lattice is not None:
            return weighted(self._inner, times, start, self.lattice)
        noise = nodes(self.legs, self.base.noise_dim)
        return simulated(self._inner, times, start, noise)

    def _from_noise(
        self, state: Subintervals, noise: Float[Array, " m"], x0: Float[Array, " d+k"]
    ) -> Float[Array, " d"]:
        rows = noise.reshape(self.legs, -1)
        moved = simulate(self._inner, state, rows, self.chart.start(x0), state.number)
        return self.chart.from_real(moved[: self.dim])

    def _restricted(self, t: Float[Array, "*batch"]) -> AbstractTransitionDensity:
        if isinstance(t, jax.core.Tracer) or t.size == 0:
            return self
        # In NumPy: within the user's `jit` known numbers would become part of the trace.
        return self.base if np.max(np.asarray(t)) <= self.reach * (1 + ROUNDING) else self

    def _mean_over_starts(
        self,
        t: Float[Array, ""],
        starts: Float[Array, "groups n d+k"],
        noise: Float[Array, "groups p m"],
    ) -> StartMixture:
        if self.lattice is None:
            paths = jnp.repeat(starts, noise.shape[1] // starts.shape[1], axis=1)
            return StartMixture(self.base, *_last_starts(self, t, paths, noise))
        return StartMixture(self.base, *_lattice_starts(self, self.lattice, t, starts))

    def _why_horizon(self) -> str:
        return " Its `extended(horizon)` composes longer times."


@eqx.filter_jit
def _last_starts(
    density: ComposedDensity,
    t: Float[Array, ""],
    starts: Float[Array, "groups n d+k"],
    noise: Float[Array, "groups n m"],
) -> tuple[Float[Array, ""], Float[Array, "groups n d+k"]]:
    """Return the length of the last subinterval, and where it begins on a path from each start."""
    base, chart, dim = density._inner, density.chart, density.dim
    times = density._at_time(t)

    def one(row: tuple[Array, Array]) -> Float[Array, " d+k"]:
        start, noise = row
        rows = noise.reshape(-1, base.noise_dim)
        moved = simulate(base, times, rows, chart.start(start), times.number - 1)
        return start.at[:dim].set(chart.from_real(moved[:dim]))

    tables = starts.reshape(-1, starts.shape[-1]), noise.reshape(-1, noise.shape[-1])
    return times.length, jax.lax.map(one, tables, batch_size=CHUNK).reshape(starts.shape)


@eqx.filter_jit
def _lattice_starts(
    density: ComposedDensity,
    lattice: Lattice,
    t: Float[Array, ""],
    starts: Float[Array, "groups n d"],
) -> tuple[Float[Array, ""], Float[Array, "1 m d"], Float[Array, "groups m"]]:
    """Return the length of the last subinterval, the states of the lattice, and their weights."""
    base, chart, times = density._inner, density.chart, density._at_time(t)
    one = lambda start: weighted(base, times, chart.start(start), lattice).weights
    weights = jax.lax.map(one, starts.reshape(-1, starts.shape[-1]), batch_size=_TOGETHER)
    means = weights.reshape(*starts.shape[:2], -1).mean(axis=1)
    points = jnp.asarray(lattice.points, t.dtype)
    return times.length, jax.vmap(chart.from_real)(points)[None], means
