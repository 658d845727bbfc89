r"""Parameters of an SDE by maximum likelihood.

A trust-region Newton method searches for the maximum in unconstrained coordinates, with exact first
and second derivatives; the Hessian is cheap because parameters are few. Standard errors come from
the observed information, the negative Hessian of the log-likelihood at the maximum.
"""

import dataclasses
from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float
from scipy.optimize import OptimizeResult, minimize

from ..sde.argument_checks import checked_count, checked_number, real_numbers
from ..sde.parameters import Bounds, check_names, checked_param
from ..transition.transition_density import AbstractTransitionDensity, require_density
from .likelihood import Transitions, transitions

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
) -> Estimate:
    """Estimate the parameters of an SDE from discretely observed paths.

    **Arguments:**

    - `density`: a transition density with parameters.
    - `times`, `states`: as for `diracflow.log_likelihood`; independent paths along leading axes.
    - `start`: initial guess, a number for each parameter.
    - `bounds`: open intervals `(low, high)` that narrow those of the density; infinite ends are
        allowed.
    - `max_iterations`: largest number of iterations of the trust-region Newton method.

    **Returns:**

    An `Estimate`: `params`, `standard_errors`, `covariance`, `log_likelihood`, `converged` and
    `message`. The maximum is a local one; try several initial guesses.
    """
    require_density(density)
    limits = _limits(density, start, {} if bounds is None else bounds)
    checked_count("max_iterations", max_iterations)
    observed = transitions(density, times, states)
    first = from_intervals(np.array([float(start[name]) for name in density.params]), limits)
    loss = _Loss(density, observed, limits)
    return _estimate(loss, _minimised(loss, first, max_iterations))


class _Loss(eqx.Module):
    """Negative log-likelihood per transition, as a function of unconstrained parameters."""

    density: AbstractTransitionDensity
    observed: Transitions
    limits: Limits = eqx.field(static=True)

    def __call__(self, free: Float[Array, " k"]) -> Float[Array, ""]:
        values = into_intervals(free, self.limits)
        params = dict(zip(self.density.params, values, strict=True))
        return -jnp.sum(self.observed.log_prob(self.density, params)) / len(self.observed.path)


def _minimised(loss: _Loss, first: np.ndarray, max_iterations: int) -> OptimizeResult:
    if not np.isfinite(_value_and_gradient(loss, first)[0]):
        raise ValueError(
            "The log-likelihood at `start` is not finite. Start nearer to plausible parameters, "
            "and check that every state lies where the process can be."
        )
    # Half of the digits: rounding of the gradient is far below, and so is the statistical error.
    tolerance = float(np.sqrt(jnp.finfo(jnp.result_type(float)).eps))
    return minimize(
        lambda free: _value_and_gradient(loss, free),
        first,
        jac=True,
        hess=lambda free: np.asarray(_hessian(loss, jnp.asarray(free)), np.float64),
        method="trust-exact",
        options={"gtol": tolerance, "maxiter": max_iterations},
    )


def _value_and_gradient(loss: _Loss, free: np.ndarray) -> tuple[float, np.ndarray]:
    value, gradient = _differentiated(loss, jnp.asarray(free))
    return float(value), np.asarray(gradient, np.float64)


@eqx.filter_jit
def _differentiated(loss: _Loss, free: Array) -> tuple[Array, Array]:
    # Forward mode, because parameters are few: it runs faster and its derivative compiles faster.
    gradient, value = jax.jacfwd(lambda f: (loss(f),) * 2, has_aux=True)(free)
    return value, gradient


@eqx.filter_jit
def _hessian(loss: _Loss, free: Array) -> Array:
    return jax.jacfwd(jax.jacfwd(loss))(free)


def _estimate(loss: _Loss, found: OptimizeResult) -> Estimate:
    covariance, definite = _covariance(loss, jnp.asarray(found.x))
    names = loss.density.params
    named = lambda numbers: dict(zip(names, map(float, numbers), strict=True))
    return Estimate(
        params=named(into_intervals(jnp.asarray(found.x), loss.limits)),
        standard_errors=named(np.sqrt(np.diag(covariance))),
        covariance=covariance,
        log_likelihood=-float(found.fun) * len(loss.observed.path),
        converged=bool(found.success) and definite,
        message=_message(found, definite),
        iterations=int(found.nit),
    )


def _covariance(loss: _Loss, free: Float[Array, " k"]) -> tuple[np.ndarray, bool]:
    """Return the inverse of the observed information, and `True` if that is positive definite."""
    information = len(loss.observed.path) * np.asarray(_hessian(loss, free), np.float64)
    if not (np.all(np.isfinite(information)) and np.linalg.eigvalsh(information)[0] > 0):
        return np.full_like(information, np.nan), False
    # First derivatives vanish at a maximum, so the information transforms as a tensor.
    jacobian = np.asarray(jax.jacobian(into_intervals)(free, loss.limits), np.float64)
    return jacobian @ np.linalg.inv(information) @ jacobian.T, True


def _message(found: OptimizeResult, definite: bool) -> str:
    if not found.success:
        return f"{found.message} Try another start, narrower bounds or more iterations."
    if not definite:
        return (
            "The likelihood has no strict maximum here: the data do not determine all parameters. "
            "Fix some of them by narrow bounds, or observe longer."
        )
    return "The gradient vanishes at a strict maximum."


def _limits(
    density: AbstractTransitionDensity, start: Mapping[str, float], bounds: Bounds
) -> Limits:
    if not density.params:
        raise ValueError("This density has no parameters to estimate.")
    check_names(density.params, start)
    if not isinstance(bounds, Mapping):
        raise ValueError(f"`bounds` must map names to pairs; got {type(bounds).__name__}.")
    check_names(density.params, {**dict.fromkeys(density.params), **bounds})
    for name in density.params:
        checked_param(name, start[name], density.param_bounds)
        checked_number(name, start[name])
    known = density.param_bounds
    return tuple(_narrowed(name, known, bounds, start[name]) for name in density.params)


def _narrowed(name: str, known: Bounds, asked: Bounds, start: float) -> tuple[float, float]:
    """Return the intersection of the density's and the user's bounds of one parameter."""
    real_line = (-np.inf, np.inf)
    bound = asked.get(name, real_line)
    pair = np.asarray(real_numbers(f"bounds[{name!r}]", bound))
    if pair.shape != (2,) or not pair[0] < pair[1]:
        raise ValueError(
            f"Bounds are pairs `(low, high)` with `low < high`; got {bound!r} for `{name}`."
        )
    ends = known.get(name, real_line)
    low, high = max(ends[0], float(pair[0])), min(ends[1], float(pair[1]))
    if not low < float(start) < high:
        raise ValueError(
            f"The search must start inside the bounds; `{name}` starts at {start} and is "
            f"bound to ({low:g}, {high:g})."
        )
    return low, high


def into_intervals(free: Float[Array, " k"], limits: Limits) -> Float[Array, " k"]:
    """Map real numbers into open intervals.

    Half lines are images of exponentials, bounded intervals of the logistic function.
    """
    return jnp.stack([_into(u, *ends) for u, ends in zip(free, limits, strict=True)])


def from_intervals(values: Float[ArrayLike, " k"], limits: Limits) -> np.ndarray:
    """Apply the inverse of `into_intervals`."""
    return np.array([_from(v, *ends) for v, ends in zip(np.asarray(values), limits, strict=True)])


def _into(u: Float[Array, ""], low: float, high: float) -> Float[Array, ""]:
    if np.isfinite(low) and np.isfinite(high):
        return low + (high - low) * jax.nn.sigmoid(u)
    if np.isfinite(low):
        return low + jnp.exp(u)
    return high - jnp.exp(-u) if np.isfinite(high) else u


def _from(v: float, low: float, high: float) -> float:
    if np.isfinite(low) and np.isfinite(high):
        return float(np.log(v - low) - np.log(high - v))
    if np.isfinite(low):
        return float(np.log(v - low))
    return float(-np.log(high - v)) if np.isfinite(high) else float(v)
