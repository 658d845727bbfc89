r"""What a transition density is, exact or learned.

A density is given by functions of one point at one time; batches, derivatives, checks and the
frozen view are the same for all and live here.
"""

import abc
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, ArrayLike, Bool, Float, PRNGKeyArray

from ..sde.argument_checks import (
    checked_batch,
    checked_key,
    checked_point,
    checked_shape,
    checked_time,
)
from ..sde.domains import AbstractDomain, Real, require_inside
from ..sde.parameters import Bounds, Params, checked_params, checked_start_time, joined
from ..sde.sde import SDE
from .batching import in_pieces
from .broadcast import map_points
from .device_cache import asked, compiled

# Made once: every query asks for the domain.
_LINE = Real()


class AbstractLastLeg(eqx.Module):
    """What is left of the way for groups of starts, of whose densities means are taken."""

    @property
    @abc.abstractmethod
    def rows(self) -> int:
        """How many densities are evaluated at each point."""

    @abc.abstractmethod
    def log_probs(self, x: Float[Array, " d"]) -> Float[Array, " groups"]:
        """Logarithms of the mean densities at one point."""


class AbstractTransitionDensity(eqx.Module):
    r"""The density $\rho(x | t, x_0)$ of $X(s+t)$ given $X(s) = x_0$.

    `x` and `x0` have the state along their last axis; they and `t` broadcast over leading axes.
    All queries work under `jit`, `vmap` and `grad`, in `x`, `t` and `x0`. Where the density depends
    on parameters of the SDE, named in `params`, queries take their values in a mapping of the same
    name; where it depends on the time of the start, `start_time` is `None` and queries take it
    under that name. Both broadcast and differentiate as well. A learned density warns of starts
    outside the law it was trained on, or raises if `strict`.
    """

    dim: eqx.AbstractVar[int]
    horizon: eqx.AbstractVar[float]
    noise_dim: eqx.AbstractVar[int]
    # A default, so that densities without parameters need not mention them.
    params: tuple[str, ...] = eqx.field(static=True, default=(), kw_only=True)

    # By identity, so that `jax.jit(density.log_prob)` works; arrays have no hash.
    __hash__ = object.__hash__

    @abc.abstractmethod
    def _at_time(self, t: Float[Array, ""]) -> Any:
        """All that depends on time alone."""

    @abc.abstractmethod
    def _log_prob(
        self, state: Any, x: Float[Array, " d"], x0: Float[Array, " d+k"]
    ) -> Float[Array, ""]:
        """Log-density at one point; `state` comes from `_at_time`, parameters follow the start."""

    @abc.abstractmethod
    def _from_noise(
        self, state: Any, noise: Float[Array, " m"], x0: Float[Array, " d+k"]
    ) -> Float[Array, " d"]:
        """The point to which `noise_dim` standard normal numbers are carried."""

    def log_prob(
        self,
        x: Float[ArrayLike, "*batch d"],
        t: Float[ArrayLike, "*batch"],
        x0: Float[ArrayLike, "*batch d"],
        params: Params | None = None,
        *,
        start_time: Float[ArrayLike, "*batch"] | None = None,
        strict: bool = False,
    ) -> Float[Array, "*batch"]:
        """Log-density at `x`, a time `t` after the start at `x0`."""
        query = checked_query(self, t, params, strict, start_time, x=x, x0=x0)
        asking = functools.partial(log_probs, asked(self, "_for_times", query[0]))
        return in_pieces(asking, *query, spread=True)

    def prob(
        self,
        x: Float[ArrayLike, "*batch d"],
        t: Float[ArrayLike, "*batch"],
        x0: Float[ArrayLike, "*batch d"],
        params: Params | None = None,
        *,
        start_time: Float[ArrayLike, "*batch"] | None = None,
        strict: bool = False,
    ) -> Float[Array, "*batch"]:
        """Density at `x`, a time `t` after the start at `x0`."""
        return jnp.exp(self.log_prob(x, t, x0, params, start_time=start_time, strict=strict))

    def score(
        self,
        x: Float[ArrayLike, "*batch d"],
        t: Float[ArrayLike, "*batch"],
        x0: Float[ArrayLike, "*batch d"],
        params: Params | None = None,
        *,
        start_time: Float[ArrayLike, "*batch"] | None = None,
        strict: bool = False,
    ) -> Float[Array, "*batch d"]:
        """Gradient of the log-density in `x`."""
        query = checked_query(self, t, params, strict, start_time, finite=True, x=x, x0=x0)
        asking = functools.partial(_scores, asked(self, "_for_times", query[0]))
        return in_pieces(asking, *query, spread=True)

    def start_score(
        self,
        x: Float[ArrayLike, "*batch d"],
        t: Float[ArrayLike, "*batch"],
        x0: Float[ArrayLike, "*batch d"],
        params: Params | None = None,
        *,
        start_time: Float[ArrayLike, "*batch"] | None = None,
        strict: bool = False,
    ) -> Float[Array, "*batch d"]:
        """Gradient of the log-density in the start `x0`."""
        query = checked_query(self, t, params, strict, start_time, finite=True, x=x, x0=x0)
        asking = functools.partial(_start_scores, asked(self, "_for_times", query[0]))
        return in_pieces(asking, *query, spread=True)

    def sample(
        self,
        key: PRNGKeyArray,
        t: Float[ArrayLike, "*batch"],
        x0: Float[ArrayLike, "*batch d"],
        shape: int | tuple[int, ...] = (),
        params: Params | None = None,
        *,
        start_time: Float[ArrayLike, "*batch"] | None = None,
        strict: bool = False,
    ) -> Float[Array, "*shape_and_batch d"]:
        """Independent draws, of shape `shape + batch + (dim,)`."""
        key, sizes = checked_key(key), checked_shape(shape)
        t, x0 = checked_query(self, t, params, strict, start_time, x0=x0)
        asked(self, "_require_samples", x0)
        batch = np.broadcast_shapes(t.shape, x0.shape[:-1])
        noise = jr.normal(key, (*sizes, *batch, self.noise_dim))
        return in_pieces(functools.partial(images, self), t, noise, x0, spread=True)

    def at(
        self,
        t: Float[ArrayLike, "*batch"],
        x0: Float[ArrayLike, "*batch d"],
        params: Params | None = None,
        *,
        start_time: Float[ArrayLike, "*batch"] | None = None,
        strict: bool = False,
    ) -> "Frozen":
        """The law at one time from one start, with the methods of a frozen SciPy distribution."""
        t, start = checked_query(self, t, params, strict, start_time, x0=x0)
        return Frozen(self, t, start[..., : self.dim], **self._keywords(start[..., self.dim :]))

    def outside(
        self,
        x0: Float[ArrayLike, "*batch d"],
        params: Params | None = None,
        start_time: Float[ArrayLike, "*batch"] | None = None,
    ) -> Bool[Array, "*batch"]:
        """Whether starts lie outside what the density was made for; never so for exact ones."""
        start = checked_point("x0", x0, self.dim)
        return jnp.zeros(self._joined(start, params, start_time).shape[:-1], bool)

    @property
    def domain(self) -> tuple[AbstractDomain, ...]:
        """Where the components of a state live."""
        return (_LINE,) * self.dim

    @property
    def start_time(self) -> float | None:
        """The time of the start; `None` if queries say which."""
        return 0.0

    @property
    def start_time_bounds(self) -> tuple[float, float]:
        """Between which start times the density is known, where queries say which."""
        return -np.inf, np.inf

    @property
    def param_bounds(self) -> Bounds:
        """Between which values each parameter is known; one without an entry may be any number."""
        return {}

    def _joined(
        self,
        x0: Float[Array, "*batch d"],
        params: Params | None,
        start_time: ArrayLike | None,
    ) -> Float[Array, "*batch d+k"]:
        """All that is given at the start: parameters and the time of the start follow `x0`."""
        values = checked_params(params, self.params, self.param_bounds)
        times = checked_start_time(start_time, self.start_time, self.start_time_bounds)
        return joined(x0, dict(zip((*self.params, "start_time"), [*values, *times], strict=False)))

    def _guard(
        self, x0: Float[Array, "*batch d"], start: Float[Array, "*batch d+k"], strict: bool
    ) -> None:
        """Raise for starts outside the domain; learned densities warn of rare starts as well."""
        if not isinstance(x0, jax.core.Tracer):
            asked(self, "_require_inside", x0)

    def _require_inside(self, x0: Float[Array, "*batch d"]) -> None:
        """Raise if one of the starts, whose values are known, lies outside the domain."""
        require_inside(self.domain, x0)

    def _for_times(self, t: Float[Array, "*batch"]) -> "AbstractTransitionDensity":
        """What answers a query at these times: this, or something faster that agrees with it."""
        return self

    def _is_composed(self, t: Float[Array, ""]) -> bool:
        """Whether a time is known to be composed of several legs."""
        return False

    def _last_leg(
        self,
        t: Float[Array, ""],
        starts: Float[Array, "groups n d+k"],
        noise: Float[Array, "groups p m"],
    ) -> AbstractLastLeg:
        """What is left of the way, once starts have moved up to the last of the legs of a time.

        Where they do so by `noise`, there may be several rows of it for each start.
        """
        return WholeWay(self, t, starts)

    def _require_samples(self, start: Float[Array, "*batch d+k"]) -> None:
        """Raise where the density cannot be sampled."""

    def _keywords(self, tail: Float[Array | np.ndarray, "*batch k"]) -> dict[str, Any]:
        """What follows a start, as the keywords of a query."""
        params = {name: tail[..., i] for i, name in enumerate(self.params)}
        time = tail[..., len(params)] if self.start_time is None else None
        return {"params": params, "start_time": time}

    def _why_horizon(self) -> str:
        """Said after an error about a time beyond the horizon."""
        return ""


class WholeWay(AbstractLastLeg):
    """The way from each of the starts, all of them alike."""

    density: AbstractTransitionDensity
    t: Float[Array, ""]
    starts: Float[Array, "groups n d+k"]

    @property
    def rows(self) -> int:
        return self.starts.shape[0] * self.starts.shape[1]

    def log_probs(self, x: Float[Array, " d"]) -> Float[Array, " groups"]:
        values = log_probs(self.density, self.t, x, self.starts)
        return logsumexp(values, axis=1) - jnp.log(jnp.asarray(values.shape[1], values.dtype))


def checked_query(
    density: AbstractTransitionDensity,
    t: ArrayLike,
    params: Params | None = None,
    strict: bool = False,
    start_time: ArrayLike | None = None,
    *,
    finite: bool = False,
    **points: ArrayLike,
) -> tuple[Array, ...]:
    """Time and points of a query; all that is given at the start takes the place of `x0`.

    If `finite`, no point may lie at infinity.
    """
    t = checked_time(t, density.horizon, asked(density, "_why_horizon"))
    checked = {name: checked_point(name, p, density.dim, finite) for name, p in points.items()}
    if "x0" in checked:
        start = asked(density, "_joined", checked["x0"], params, start_time)
        asked(density, "_guard", checked["x0"], start, strict)
        checked["x0"] = start
    checked_batch(t=t.shape, **{name: p.shape[:-1] for name, p in checked.items()})
    return (t, *checked.values())


def require_density(value: object, name: str = "density") -> None:
    """Raise unless this is a transition density."""
    if isinstance(value, AbstractTransitionDensity):
        return
    hint = " Take its `exact` density, or learn it." if hasattr(value, "exact") else ""
    if isinstance(value, SDE):
        hint = " Learn its density first: `diracflow.learn`."
    raise ValueError(
        f"`{name}` must be a transition density, learned or exact; got {type(value).__name__}."
        f"{hint}"
    )


class Frozen(eqx.Module):
    """A transition density at fixed time and start."""

    density: AbstractTransitionDensity
    t: Float[Array, "*batch"]
    x0: Float[Array, "*batch d"]
    params: Params
    start_time: Float[Array, "*batch"] | None

    def logpdf(self, x: Float[ArrayLike, "*batch d"]) -> Float[Array, "*batch"]:
        """Log-density at `x`."""
        return self.density.log_prob(x, self.t, self.x0, self.params, start_time=self.start_time)

    def pdf(self, x: Float[ArrayLike, "*batch d"]) -> Float[Array, "*batch"]:
        """Density at `x`."""
        return self.density.prob(x, self.t, self.x0, self.params, start_time=self.start_time)

    def rvs(
        self,
        size: int | tuple[int, ...] | None = None,
        random_state: int | np.random.Generator | None = None,
    ) -> Float[np.ndarray, "*size d"]:
        """Draws as a NumPy array; `random_state` as in SciPy."""
        try:
            generator = np.random.default_rng(random_state)
        except (TypeError, ValueError):
            raise ValueError(
                "`random_state` must be a whole number that is not negative, a NumPy generator or "
                f"None; got {random_state!r}."
            ) from None
        seed = generator.integers(2**32, dtype=np.uint32)
        shape = () if size is None else size
        draws = self.density.sample(
            jr.key(seed), self.t, self.x0, shape, self.params, start_time=self.start_time
        )
        return np.asarray(draws)


@compiled
def log_probs(density: AbstractTransitionDensity, t: Array, x: Array, x0: Array) -> Array:
    """`log_prob` of arguments that have been checked."""

    def at_point(state: Any, x: Array, x0: Array) -> Array:
        # Densities vanish at infinity, where formulas and flows subtract infinite numbers.
        infinite = jnp.isinf(jnp.sum(jnp.abs(x)))  # not where there is NaN as well
        value = density._log_prob(state, jnp.where(infinite, x0[: len(x)], x), x0)
        return jnp.where(infinite, -jnp.inf, value)

    return map_points(density._at_time, at_point, t, x, x0)


@compiled
def _scores(density: AbstractTransitionDensity, t: Array, x: Array, x0: Array) -> Array:
    return map_points(density._at_time, jax.grad(density._log_prob, argnums=1), t, x, x0)


@compiled
def _start_scores(density: AbstractTransitionDensity, t: Array, x: Array, x0: Array) -> Array:
    gradient = jax.grad(density._log_prob, argnums=2)
    # Parameters follow the start; the gradient in them is not asked for here.
    return map_points(density._at_time, lambda *args: gradient(*args)[: density.dim], t, x, x0)


@compiled
def images(density: AbstractTransitionDensity, t: Array, noise: Array, x0: Array) -> Array:
    """Points to which standard normal numbers are carried, of arguments that have been checked."""
    return map_points(density._at_time, density._from_noise, t, noise, x0)
