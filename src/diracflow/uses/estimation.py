r"""Parameters of an SDE by maximum likelihood.

The maximum is sought by a trust-region Newton method in unconstrained coordinates, with exact
first and second derivatives; few parameters make the Hessian cheap. Standard errors come from the
observed information, the negative Hessian of the log-likelihood at the maximum.
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
from .interval import Interval, from_intervals, into_intervals
from .likelihood import Transitions, transitions


@dataclasses.dataclass(frozen=True)
class Estimate:
    """Parameters of greatest likelihood, and how well the data determine them.

    Standard errors are NaN where the observed information is not positive definite; `message` then
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
    - `start`: where the search begins, a number for each parameter.
    - `bounds`: open intervals `(low, high)` that narrow those of the density; infinite ends are
        allowed.
    - `max_iterations`: of the trust-region Newton method.

    **Returns:**

    An `Estimate`: `params`, `standard_errors`, `covariance`, `log_likelihood`, `converged` and
    `message`. The maximum is a local one; other starts tell whether there are more.
    """
    require_density(density)
    limits = _limits(density, start, {} if bounds is None else bounds)
    checked_count("max_iterations", max_iterations)
    observed = transitions(density, times, states)
    first = from_intervals(np.array([float(start[name]) for name in density.params]), limits)
    loss = _Loss(density, observed, limits)
    return _estimate(loss, _search(loss, first, max_iterations))


class _Loss(eqx.Module):
    """Negative log-likelihood per transition, as a function of unconstrained parameters."""

    density: AbstractTransitionDensity
    observed: Transitions
    limits: tuple[Interval, ...] = eqx.field(static=True)

    def __call__(self, free: Float[Array, " k"]) -> Float[Array, ""]:
        values = into_intervals(free, self.limits)
        params = dict(zip(self.density.params, values, strict=True))
        return -jnp.sum(self.observed.log_prob(self.density, params)) / len(self.observed.path)


def _search(loss: _Loss, first: np.ndarray, max_iterations: int) -> OptimizeResult:
    if not np.isfinite(_slope(loss, jnp.asarray(first))[0]):
        raise ValueError(
            "The log-likelihood at `start` is not finite. Start nearer to plausible parameters, "
            "and check that every state lies where the process can be."
        )
    # Half of the digits: rounding of the gradient is far below, and so is the statistical error.
    tolerance = float(np.sqrt(jnp.finfo(jnp.result_type(float)).eps))
    return minimize(
        lambda free: _as_numpy(_slope(loss, jnp.asarray(free))),
        first,
        jac=True,
        hess=lambda free: np.asarray(_curvature(loss, jnp.asarray(free)), np.float64),
        method="trust-exact",
        options={"gtol": tolerance, "maxiter": max_iterations},
    )


@eqx.filter_jit
def _slope(loss: _Loss, free: Array) -> tuple[Array, Array]:
    # Forwards, for parameters are few: faster to run, and second derivatives faster to compile.
    slope, value = jax.jacfwd(lambda f: (loss(f),) * 2, has_aux=True)(free)
    return value, slope


@eqx.filter_jit
def _curvature(loss: _Loss, free: Array) -> Array:
    return jax.jacfwd(jax.jacfwd(loss))(free)


def _as_numpy(value_and_grad: tuple[Array, Array]) -> tuple[float, np.ndarray]:
    return float(value_and_grad[0]), np.asarray(value_and_grad[1], np.float64)


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
    """Inverse of the observed information, and whether that is positive definite."""
    information = len(loss.observed.path) * np.asarray(_curvature(loss, free), np.float64)
    if not (np.all(np.isfinite(information)) and np.linalg.eigvalsh(information)[0] > 0):
        return np.full_like(information, np.nan), False
    # First derivatives vanish at a maximum: the information changes with coordinates as a tensor.
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
) -> tuple[Interval, ...]:
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
    return tuple(_narrowed(name, known, bounds, start) for name in density.params)


def _pair(name: str, bound: object) -> tuple[float, float]:
    pair = np.asarray(real_numbers(f"bounds[{name!r}]", bound))
    if pair.shape != (2,) or not pair[0] < pair[1]:
        raise ValueError(
            f"Bounds are pairs `(low, high)` with `low < high`; got {bound!r} for `{name}`."
        )
    return float(pair[0]), float(pair[1])


def _narrowed(name: str, known: Bounds, asked: Bounds, start: Mapping[str, float]) -> Interval:
    everywhere = (-np.inf, np.inf)
    ends = known.get(name, everywhere), _pair(name, asked.get(name, everywhere))
    low, high = max(e[0] for e in ends), min(e[1] for e in ends)
    if not low < float(start[name]) < high:
        raise ValueError(
            f"The search must start inside the bounds; `{name}` starts at {start[name]} and is "
            f"bound to ({low:g}, {high:g})."
        )
    return low, high
