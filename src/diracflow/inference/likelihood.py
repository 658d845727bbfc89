r"""Likelihood of discretely observed paths, and parameters of an SDE that maximise it.

By the Markov property the states $x_0, \dots, x_n$ seen at times $t_0 < \dots < t_n$ have the joint
density $\prod_i \rho(x_i | t_i - t_{i-1}, x_{i-1})$ given the first. No step is subdivided, so the
likelihood is as exact as the transition density, whatever the length of the gaps. If the density
depends on the start time, the start time of a transition is $t_{i-1}$.

A trust-region Newton method searches for the maximum in unconstrained coordinates, with exact first
and second derivatives; the Hessian is cheap because parameters are few. Standard errors come from
the observed information, the negative Hessian of the log-likelihood at the maximum.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int
from scipy.optimize import minimize

from ..sde.argument_checks import checked_batch, checked_count, checked_number, real_numbers
from ..sde.parameters import Bounds, Params, check_names, checked_param
from ..transition.programs import log_probs
from ..transition.transition_density import (
    AbstractTransitionDensity,
    checked_query,
    require_density,
)
from ..uses.observed import in_unit


class Transitions(eqx.Module):
    """Observed paths split into single transitions, one per row."""

    gaps: Float[Array, " n"]
    begins: Float[Array, " n"]  # times at which transitions start
    before: Float[Array, "n d"]
    after: Float[Array, "n d"]
    path: Int[np.ndarray, " n"]  # index of the path of each transition
    batch: tuple[int, ...] = eqx.field(static=True)  # leading axes of the paths

    def log_prob(
        self, density: AbstractTransitionDensity, params: Params | None = None
    ) -> Float[Array, "*batch"]:
        """Return the log-likelihood of each path."""
        params = {} if params is None else params
        check_names(density.params, params)
        spread = {name: self._spread(name, value) for name, value in params.items()}
        times = self.begins if density.start_time is None else None
        t, x, start = checked_query(
            density, self.gaps, spread, start_time=times, x=self.after, x0=self.before
        )
        return self._path_sums(density._restricted(t), t, x, start)

    @eqx.filter_jit
    def _path_sums(
        self, density: AbstractTransitionDensity, t: Array, x: Array, start: Array
    ) -> Float[Array, "*batch"]:
        terms, paths = log_probs(density, t, x, start), int(np.prod(self.batch, dtype=int))
        return jax.ops.segment_sum(terms, self.path, paths).reshape(self.batch)

    def _spread(self, name: str, value: ArrayLike) -> Array:
        """Return a parameter value for each transition, from one for each path."""
        values = real_numbers(name, value)
        if values.ndim == 0:
            return values
        if checked_batch(**{"paths": self.batch, name: values.shape}) != self.batch:
            raise ValueError(
                f"`{name}` must be one number or one for each path, of shape {self.batch}; got "
                f"shape {values.shape}."
            )
        return jnp.broadcast_to(values, self.batch).reshape(-1)[self.path]


def log_likelihood(
    density: AbstractTransitionDensity,
    times: Float[ArrayLike, "*batch n+1"],
    states: Float[ArrayLike, "*batch n+1 d"],
    params: Params | None = None,
    *,
    unit: str | None = None,
) -> Float[Array, "*batch"]:
    r"""Return the log-likelihood of paths observed at discrete times, given their first states.

    **Arguments:**

    - `density`: a transition density, learned or exact.
    - `times`: increasing times, evenly spaced or not; every gap within the density's horizon.
    - `states`: the state at each time: an array, or a pandas or xarray object. Leading axes stand
        for independent paths, which may share `times`. A row of NaN is a missing observation: its
        two gaps become one. Under `jit` or `grad` in `states` values are not known, so such rows
        must be left out.
    - `params`: parameters of the SDE, if the density has any; scalars or one value for each path.
    - `unit`: the unit of the SDE's time, if `times` are dates (the index of a pandas object, or the
        coordinate `time` of an xarray object): `"day"`, `"hour"`, `"year"` or others, see
        `diracflow.observed`. The first date is time zero.

    **Returns:**

    One number for each path; their sum is the log-likelihood of all paths. It is differentiable in
    `states`, `times` and `params`. Only the gaps between times matter, unless the density depends
    on the start time.
    """
    return transitions(density, *in_unit(times, states, unit)).log_prob(density, params)


def transitions(
    density: AbstractTransitionDensity, times: ArrayLike, states: ArrayLike
) -> Transitions:
    """Check observed paths and split them into transitions."""
    require_density(density)
    t, x = _table(density, times, states)
    batch, length = x.shape[:-2], x.shape[-2]
    seen = _observed(x).reshape(-1, length)
    counts = seen.sum(axis=1)
    if np.any(counts < 2) or not len(seen):
        raise ValueError(
            "A path needs at least two observed states; got one with "
            f"{int(counts.min(initial=length)) if len(seen) else 0}."
        )
    rows = np.flatnonzero(seen)
    same_path = np.diff(rows // length) == 0
    before, after = rows[:-1][same_path], rows[1:][same_path]
    t, rows = t.reshape(-1), x.reshape(-1, density.dim)
    gaps = t[after] - t[before]
    if isinstance(gaps, np.ndarray):
        if np.any(gaps <= 0):
            raise ValueError(
                f"`times` must increase along each path; {np.sum(gaps == 0)} gaps are zero and "
                f"{np.sum(gaps < 0)} negative. Sort the observations and merge those of one time."
            )
        # The same tolerance for rounding as in every query.
        beyond = gaps > density.horizon * (1 + 1e-6)
        if np.any(beyond):
            raise ValueError(
                f"{beyond.sum()} of {gaps.size} gaps between observations are longer than the "
                f"horizon {density.horizon:g} of the density; the longest is {gaps.max():g}."
                f"{density._why_horizon()}"
            )
        # One gap if all are equal up to rounding, so that terms in time are computed once.
        rounding = 1e-12 if gaps.dtype == np.float64 else 1e-6
        gaps = gaps[:1] if np.allclose(gaps, gaps[0], rtol=rounding, atol=0) else gaps
    return Transitions(gaps, t[before], rows[before], rows[after], before // length, batch)


def _table(
    density: AbstractTransitionDensity, times: ArrayLike, states: ArrayLike
) -> tuple[Any, Any]:
    """Return times and states with equal leading axes, as NumPy arrays if values are known."""
    # NumPy arrays stay concrete inside the `jit` of a sampler or optimiser.
    t, x = (
        value if isinstance(value, jax.core.Tracer) else np.asarray(value)
        for value in (real_numbers("times", times), real_numbers("states", states))
    )
    if density.dim == 1 == x.ndim:  # one path of scalars
        x = x.reshape(-1, 1)  # type: ignore[assignment]
    if x.ndim < 2 or x.shape[-1] != density.dim or t.ndim < 1 or t.shape[-1] != x.shape[-2]:
        raise ValueError(
            f"`states` must have shape (..., times, {density.dim}) and `times` one entry for each "
            f"of its rows; got shapes {x.shape} and {t.shape}."
        )
    if isinstance(t, np.ndarray) and not np.all(np.isfinite(t)):
        raise ValueError("`times` must be finite.")
    batch = checked_batch(times=t.shape[:-1], states=x.shape[:-2])
    shapes = (*batch, t.shape[-1]), (*batch, *x.shape[-2:])
    return tuple(
        (np if isinstance(value, np.ndarray) else jnp).broadcast_to(value, shape)
        for value, shape in zip((t, x), shapes, strict=True)
    )


def _observed(x: Array | np.ndarray) -> np.ndarray:
    """Return a mask of the observed rows. Traced values count as observed."""
    if not isinstance(x, np.ndarray):
        return np.ones(x.shape[:-1], bool)
    missing = np.isnan(x)
    if np.any(missing.any(axis=-1) != missing.all(axis=-1)):
        raise ValueError(
            "`states` has rows with some components NaN and others not; a transition density needs "
            "all components. Set the whole row to NaN to leave it out."
        )
    if np.any(np.isinf(x)):
        raise ValueError("`states` must be finite, or NaN if an observation is missing.")
    return ~missing[..., 0]


Limits = tuple[tuple[float, float], ...]


@dataclasses.dataclass(frozen=True)
class Estimate:
    """Maximum-likelihood estimates and their standard errors.

    Standard errors are NaN if the observed information is not positive definite; `message` then
    says so.
    """

    params: dict[str, float]
    standard_errors: dict[str, float]
    covariance: np.ndarray  # of the estimates, in the order of `params`
    log_likelihood: float
    converged: bool
    message: str
    iterations: int


def maximum_likelihood(
    density: AbstractTransitionDensity,
    times: Float[ArrayLike, "*batch n+1"],
    states: Float[ArrayLike, "*batch n+1 d"],
    start: Mapping[str, float],
    *,
    bounds: Bounds | None = None,
    max_iterations: int = 200,
    unit: str | None = None,
) -> Estimate:
    """Estimate the parameters of an SDE from discretely observed paths.

    **Arguments:**

    - `density`: a transition density with parameters.
    - `times`, `states`: as for `diracflow.log_likelihood`; independent paths along leading axes.
    - `start`: initial guess, a number for each parameter.
    - `bounds`: open intervals `(low, high)` that narrow those of the density; infinite ends are
        allowed.
    - `max_iterations`: largest number of iterations of the trust-region Newton method.
    - `unit`: the unit of the SDE's time, if `times` are dates, as for `diracflow.log_likelihood`.

    **Returns:**

    An `Estimate`: `params`, `standard_errors`, `covariance`, `log_likelihood`, `converged` and
    `message`. The maximum is a local one; try several initial guesses.
    """
    require_density(density)
    limits = _limits(density, start, {} if bounds is None else bounds)
    checked_count("max_iterations", max_iterations)
    observed = transitions(density, *in_unit(times, states, unit))
    first = from_intervals(np.array([float(start[name]) for name in density.params]), limits)
    return _estimate(_Loss(density, observed, limits), first, max_iterations)


class _Loss(eqx.Module):
    """Negative log-likelihood per transition, as a function of unconstrained parameters."""

    density: AbstractTransitionDensity
    observed: Transitions
    limits: Limits = eqx.field(static=True)

    def __call__(self, free: Float[Array, " k"]) -> Float[Array, ""]:
        values = into_intervals(free, self.limits)
        params = dict(zip(self.density.params, values, strict=True))
        return -jnp.sum(self.observed.log_prob(self.density, params)) / len(self.observed.path)


@eqx.filter_jit
def _gradient_and_value(loss: _Loss, free: Array) -> tuple[Array, Array]:
    # Forward mode, because parameters are few: it runs faster and its derivative compiles faster.
    return jax.jacfwd(lambda f: (loss(f),) * 2, has_aux=True)(free)


@eqx.filter_jit
def _hessian(loss: _Loss, free: Array) -> Array:
    return jax.jacfwd(jax.jacfwd(loss))(free)


def _estimate(loss: _Loss, first: np.ndarray, max_iterations: int) -> Estimate:
    def value_and_gradient(free: np.ndarray) -> tuple[float, np.ndarray]:
        gradient, value = _gradient_and_value(loss, jnp.asarray(free))
        return float(value), np.asarray(gradient, np.float64)

    if not np.isfinite(value_and_gradient(first)[0]):
        raise ValueError(
            "The log-likelihood at `start` is not finite. Start nearer to plausible parameters, "
            "and check that every state lies where the process can be."
        )
    hessian = lambda free: np.asarray(_hessian(loss, jnp.asarray(free)), np.float64)
    # Half of the digits: rounding of the gradient is far below, and so is the statistical error.
    tolerance = float(np.sqrt(jnp.finfo(jnp.result_type(float)).eps))
    options = {"gtol": tolerance, "maxiter": max_iterations}
    found = minimize(
        value_and_gradient, first, jac=True, hess=hessian, method="trust-exact", options=options
    )
    free, count, names = jnp.asarray(found.x), len(loss.observed.path), loss.density.params
    information = count * hessian(free)
    definite = bool(np.all(np.isfinite(information)) and np.linalg.eigvalsh(information)[0] > 0)
    covariance = np.full_like(information, np.nan)
    if definite:
        # First derivatives vanish at a maximum, so the information transforms as a tensor.
        jacobian = np.asarray(jax.jacobian(into_intervals)(free, loss.limits), np.float64)
        covariance = jacobian @ np.linalg.inv(information) @ jacobian.T
    message = "The gradient vanishes at a strict maximum."
    if not found.success:
        message = f"{found.message} Try another start, narrower bounds or more iterations."
    elif not definite:
        message = (
            "The likelihood has no strict maximum here: the data do not determine all parameters. "
            "Fix some of them by narrow bounds, or observe longer."
        )
    named = lambda numbers: dict(zip(names, map(float, numbers), strict=True))
    return Estimate(
        params=named(into_intervals(free, loss.limits)),
        standard_errors=named(np.sqrt(np.diag(covariance))),
        covariance=covariance,
        log_likelihood=-float(found.fun) * count,
        converged=bool(found.success) and definite,
        message=message,
        iterations=int(found.nit),
    )


def _limits(
    density: AbstractTransitionDensity, start: Mapping[str, float], bounds: Bounds
) -> Limits:
    """Return the intersection of the density's and the user's bounds of each parameter."""
    if not density.params:
        raise ValueError("This density has no parameters to estimate.")
    check_names(density.params, start)
    if not isinstance(bounds, Mapping):
        raise ValueError(f"`bounds` must map names to pairs; got {type(bounds).__name__}.")
    check_names(density.params, {**dict.fromkeys(density.params), **bounds})
    limits, real_line = [], (-np.inf, np.inf)
    for name in density.params:
        checked_param(name, start[name], density.param_bounds)
        first, bound = checked_number(name, start[name]), bounds.get(name, real_line)
        pair = np.asarray(real_numbers(f"bounds[{name!r}]", bound))
        if pair.shape != (2,) or not pair[0] < pair[1]:
            raise ValueError(
                f"Bounds are pairs `(low, high)` with `low < high`; got {bound!r} for `{name}`."
            )
        ends = density.param_bounds.get(name, real_line)
        low, high = max(ends[0], float(pair[0])), min(ends[1], float(pair[1]))
        if not low < first < high:
            raise ValueError(
                f"The search must start inside the bounds; `{name}` starts at {start[name]} and is "
                f"bound to ({low:g}, {high:g})."
            )
        limits.append((low, high))
    return tuple(limits)


def into_intervals(free: Float[Array, " k"], limits: Limits) -> Float[Array, " k"]:
    """Map real numbers into open intervals.

    Half lines are images of exponentials, bounded intervals of the logistic function.
    """

    def into(u: Float[Array, ""], low: float, high: float) -> Float[Array, ""]:
        if np.isfinite(low) and np.isfinite(high):
            return low + (high - low) * jax.nn.sigmoid(u)
        if np.isfinite(low):
            return low + jnp.exp(u)
        return high - jnp.exp(-u) if np.isfinite(high) else u

    return jnp.stack([into(u, *ends) for u, ends in zip(free, limits, strict=True)])


def from_intervals(values: Float[ArrayLike, " k"], limits: Limits) -> np.ndarray:
    """Apply the inverse of `into_intervals`."""
    v, (low, high) = np.asarray(values), np.transpose(limits)
    # The logarithm of the distance from each finite end; the value itself between infinite ends.
    above = np.log(v - low, out=np.zeros_like(v), where=np.isfinite(low))
    below = np.log(high - v, out=np.zeros_like(v), where=np.isfinite(high))
    return np.where(np.isinf(low) & np.isinf(high), v, above - below)
