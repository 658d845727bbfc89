r"""The query interface of transition densities, exact or learned.

A density is defined by functions of one point at one time. Checks, broadcasting, derivatives and
the frozen law are the same for all densities and live here.
"""

import abc
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, PRNGKeyArray

from ..sde.argument_checks import (
    checked_batch,
    checked_key,
    checked_point,
    checked_shape,
    checked_time,
    real_numbers,
)
from ..sde.domains import AbstractDomain, Real, require_inside
from ..sde.parameters import Bounds, Params, checked_params, checked_start_time, joined
from ..sde.sde import SDE
from .batching import in_batches
from .frozen import Frozen
from .programs import StartMixture, images, log_probs, scores, start_scores

# Made once: every query reads the domain.
_LINE = Real()


class AbstractTransitionDensity(eqx.Module):
    r"""The density $\rho(x | t, x_0)$ of $X(s+t)$ given $X(s) = x_0$.

    `x` and `x0` have the state along their last axis; they and `t` broadcast over leading axes.
    All queries work under `jit`, `vmap` and `grad`, in `x`, `t`, `x0`, `params` and `start_time`.

    Queries have these arguments in common:

    - `t`: time since the start, positive and at most `horizon`.
    - `x0`: the start, inside the `domain`. If it is a scalar, which needs one component, states
        have no axis: not `x`, and not the result.
    - `params`: a mapping from the names in the attribute `params` to values, if there are any.
    - `start_time`: the time $s$ of the start, if the attribute `start_time` is `None`.
    - `strict`: raise an error, rather than warn once, if a start lies outside the law that the
        density was trained on. Exact densities hold for all starts.
    """

    dim: eqx.AbstractVar[int]
    horizon: eqx.AbstractVar[float]
    noise_dim: eqx.AbstractVar[int]
    # A default, so that densities without parameters need not mention them.
    params: tuple[str, ...] = eqx.field(static=True, default=(), kw_only=True)
    # True if each value is itself a mean over intermediate states, so that means over many starts
    # are better taken by `_mean_over_starts` than start by start.
    averages: ClassVar[bool] = False

    # By identity, so that `jax.jit(density.log_prob)` works; arrays have no hash.
    __hash__ = object.__hash__
    if not TYPE_CHECKING:
        # Equinox turns each bound method into a pytree and flattens the whole density for it,
        # which takes longer than the evaluation at a point. Densities have plain methods.
        __getattribute__ = object.__getattribute__

    @abc.abstractmethod
    def _at_time(self, t: Float[Array, ""]) -> Any:
        """Return all that depends on time alone, as a pytree."""

    @abc.abstractmethod
    def _log_prob(
        self, state: Any, x: Float[Array, " d"], x0: Float[Array, " d+k"]
    ) -> Float[Array, ""]:
        """Return the log-density at one point.

        `state` comes from `_at_time`; parameters and the start time follow the start in `x0`.
        """

    @abc.abstractmethod
    def _from_noise(
        self, state: Any, noise: Float[Array, " m"], x0: Float[Array, " d+k"]
    ) -> Float[Array, " d"]:
        """Map `noise_dim` standard normal numbers to a draw of the state."""

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
        """Return the log-density at `x`, a time `t` after the start at `x0`.

        **Arguments:**

        - `x`: the state.
        - `t`, `x0`, `params`, `start_time`, `strict`: as for all queries, see above.
        """
        t, x, start = checked_query(self, t, params, strict, start_time, x=x, x0=x0)
        density, t, start = self._prepared(t, start)
        return in_batches(log_probs, density, t, x, start)

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
        """Return the density at `x`; arguments are those of `log_prob`."""
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
        """Return the gradient of the log-density in `x`; arguments are those of `log_prob`."""
        t, x, start = checked_query(self, t, params, strict, start_time, finite=True, x=x, x0=x0)
        density, t, start = self._prepared(t, start)
        return self._as_given(x0, in_batches(scores, density, t, x, start))

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
        """Return the gradient of the log-density in `x0`; arguments are those of `log_prob`."""
        query = checked_query(self, t, params, strict, start_time, finite=True, x=x, x0=x0)
        return self._as_given(x0, in_batches(start_scores, self._restricted(query[0]), *query))

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
        """Return independent draws of shape `shape + batch + (dim,)`.

        **Arguments:**

        - `key`: a random key, or a seed.
        - `shape`: number of draws, or their leading shape, for each time and start.
        - `t`, `x0`, `params`, `start_time`, `strict`: as for all queries, see above.
        """
        key, sizes = checked_key(key), checked_shape(shape)
        t, start = checked_query(self, t, params, strict, start_time, x0=x0)
        self._require_samples(start)
        batch = np.broadcast_shapes(t.shape, start.shape[:-1])
        noise = jr.normal(key, (*sizes, *batch, self.noise_dim))
        return self._as_given(x0, in_batches(images, self, t, noise, start))

    def at(
        self,
        t: Float[ArrayLike, "*batch"],
        x0: Float[ArrayLike, "*batch d"],
        params: Params | None = None,
        *,
        start_time: Float[ArrayLike, "*batch"] | None = None,
        strict: bool = False,
    ) -> Frozen:
        """Return the law at fixed time and start, with the methods of a frozen SciPy law.

        Arguments are as for all queries, see above.
        """
        t, start = checked_query(self, t, params, strict, start_time, x0=x0)
        return Frozen(self._restricted(t), t, start, is_scalar(self.dim, x0))

    def plot(
        self,
        t: float,
        x0: Float[ArrayLike, " d"],
        params: Params | None = None,
        *,
        start_time: float | None = None,
        ax: Any = None,
    ) -> Any:
        """Draw the law at one time and start in one panel, and return its `Axes`.

        **Arguments:**

        - `t`, `x0`, `params`, `start_time`: as for all queries, see above.
        - `ax`: a matplotlib `Axes`; by default that of a new figure.
        """
        return self.at(t, x0, params, start_time=start_time).plot(ax)

    def outside(
        self,
        x0: Float[ArrayLike, "*batch d"],
        params: Params | None = None,
        start_time: Float[ArrayLike, "*batch"] | None = None,
    ) -> Bool[Array, "*batch"]:
        """Return `True` where a start lies outside what the density was made for.

        For learned densities, such starts have less than 1e-4 of the law beyond them, or lie
        outside the box of a `Uniform` law. Exact densities hold for all starts. Arguments are as
        for all queries, see above.
        """
        start = checked_point("x0", with_axis(self.dim, x0), self.dim)
        return self._outside(self._joined(start, params, start_time))

    @property
    def pathwise(self) -> bool:
        """`True` if the derivative of an expectation is the expectation of that of the draws.

        It is not if draws jump, or are not differentiable, as functions of start and parameters.
        """
        return True

    @property
    def domain(self) -> tuple[AbstractDomain, ...]:
        """The domain of each component of the state."""
        return (_LINE,) * self.dim

    @property
    def start_time(self) -> float | None:
        """The time of the start; `None` if it is an argument of queries."""
        return 0.0

    @property
    def start_time_bounds(self) -> tuple[float, float]:
        """Lower and upper bound of the start time, if it is an argument of queries."""
        return -np.inf, np.inf

    @property
    def param_bounds(self) -> Bounds:
        """Lower and upper bound of each bounded parameter, by name."""
        return {}

    def _as_given(self, x0: ArrayLike, x: Float[Array, "*batch d"]) -> Array:
        """Return states as the caller writes them, without an axis if the start is a scalar."""
        return x[..., 0] if is_scalar(self.dim, x0) else x

    def _joined(
        self,
        x0: Float[Array, "*batch d"],
        params: Params | None,
        start_time: ArrayLike | None,
    ) -> Float[Array, "*batch d+k"]:
        """Append the parameters and the start time to `x0`, after checking them."""
        start_only = not self.params and self.start_time is not None
        if start_only and params is None and start_time is None:
            return x0
        values = checked_params(params, self.params, self.param_bounds)
        times = checked_start_time(start_time, self.start_time, self.start_time_bounds)
        return joined(x0, dict(zip((*self.params, "start_time"), [*values, *times], strict=False)))

    def _outside(self, start: Float[Array, "*batch d+k"]) -> Bool[Array, "*batch"]:
        """Return `outside` for conditioning vectors."""
        return jnp.zeros(start.shape[:-1], bool)

    def _check_starts(
        self, x0: Float[Array, "*batch d"], start: Float[Array, "*batch d+k"], strict: bool
    ) -> None:
        """Raise an error if a start, where known, is outside the domain; `start` is `_joined`."""
        if not isinstance(x0, jax.core.Tracer):
            require_inside(self.domain, x0)

    def _restricted(self, t: Float[Array, "*batch"]) -> "AbstractTransitionDensity":
        """Return a density with the same values at the times `t` that may be cheaper to evaluate.

        Called with times whose values may be unknown, under `jit`.
        """
        return self

    def _prepared(
        self, t: Float[Array, "*batch"], start: Float[Array, "*batch d+k"]
    ) -> tuple[Any, Array, Array]:
        """Return a density, times and conditioning vectors with the same values that are cheaper.

        For programs that do not differentiate in times or starts.
        """
        restricted = self._restricted(t)
        return (self, t, start) if restricted is self else restricted._prepared(t, start)

    def _without_provenance(self) -> "AbstractTransitionDensity":
        """Return the density as a key of compiled programs, which its provenance does not affect.

        Arrays are the same, in the same order.
        """
        return self

    def _mean_over_starts(
        self,
        t: Float[Array, ""],
        starts: Float[Array, "groups n d+k"],
        noise: Float[Array, "groups p m"],
    ) -> StartMixture:
        """Return the mean density at time `t` over each group of starts.

        Densities that average over intermediate states may simulate them with `noise`, standard
        normal rows of length `noise_dim`; `p` is a multiple of `n`.
        """
        return StartMixture(self, t, starts)

    def _require_samples(self, start: Float[Array, "*batch d+k"]) -> None:
        """Raise an error where the density cannot be sampled."""

    def _keywords(self, tail: Float[Array | np.ndarray, "*batch k"]) -> dict[str, Any]:
        """Return the parameters and the start time that follow a start as keyword arguments."""
        params = {name: tail[..., i] for i, name in enumerate(self.params)}
        time = tail[..., len(params)] if self.start_time is None else None
        return {"params": params, "start_time": time}

    def _why_horizon(self) -> str:
        """Return the end of the error message about times beyond the horizon."""
        return ""


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
    """Return times and points of a query as arrays, after checking them.

    Parameters and the start time are appended to the point named `x0`. If `finite`, points must not
    be infinite.
    """
    t = checked_time(t, density.horizon, density._why_horizon)
    # As `is_scalar`, which a query of several components need not call.
    if density.dim == 1 and "x0" in points and np.ndim(points["x0"]) == 0:
        points = {name: real_numbers(name, p)[..., None] for name, p in points.items()}
    checked = {name: checked_point(name, p, density.dim, finite) for name, p in points.items()}
    if "x0" in checked:
        x0 = checked["x0"]
        checked["x0"] = start = density._joined(x0, params, start_time)
        density._check_starts(x0, start, strict)
    # Shapes differ in few queries, and only then need comparison in detail.
    if len({t.shape, *(p.shape[:-1] for p in checked.values())} - {()}) > 1:
        checked_batch(t=t.shape, **{name: p.shape[:-1] for name, p in checked.items()})
    return (t, *checked.values())


def is_scalar(dim: int, x0: ArrayLike) -> bool:
    """Return `True` if a start is a scalar, so that states have no axis."""
    return dim == 1 and np.ndim(x0) == 0


def with_axis(dim: int, x0: ArrayLike) -> ArrayLike:
    """Return a start with an axis of components, also if it is a scalar."""
    return real_numbers("x0", x0)[None] if is_scalar(dim, x0) else x0


def require_density(value: object, name: str = "density") -> None:
    """Raise an error unless `value` is a transition density."""
    if isinstance(value, AbstractTransitionDensity):
        return
    hint = " Take its `exact` density, or learn it." if hasattr(value, "exact") else ""
    if isinstance(value, SDE):
        hint = " Learn its density first: `diracflow.learn`."
    raise ValueError(
        f"`{name}` must be a transition density, learned or exact; got {type(value).__name__}."
        f"{hint}"
    )
