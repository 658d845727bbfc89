r"""Checks that an SDE has a density for the starts of a law.

Noise must reach every component: directly, if the covariance $\Sigma$ is positive definite, or
through the drift. Linearised at a start, with $A = \nabla b$, the law of $X$ after any time has a
density if and only if $(\sigma, A\sigma, \dots, A^{d-1}\sigma)$ has rank $d$: Kalman's condition.
"""

import functools
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float

from .conditioning import initial_condition
from .laws import AbstractLaw
from .sde import SDE

# Starts at which the coefficients are checked.
_TRIALS = 256
# Smallest singular value, relative to the largest, of a regular matrix. It is squared in the
# covariance, whose Cholesky factor in float64 cannot resolve smaller values.
_SINGULAR = 1e-7
# Training draws no points beyond the quantile of this probability.
_FAR = 1e-12


def check_starts(sde: SDE, starts: AbstractLaw) -> None:
    """Raise if training could draw starts outside the domain of the SDE."""
    dim = sde.dim
    far = jnp.asarray([_FAR, 1 - _FAR])
    # Extreme quantiles along each axis and along the diagonal, and random draws.
    axes = jnp.full((dim, 2, dim), 0.5).at[jnp.arange(dim), :, jnp.arange(dim)].set(far)
    corners = jnp.broadcast_to(far[:, None], (2, dim))
    u = jnp.concatenate([axes.reshape(-1, dim), corners])
    x = np.concatenate([starts.transport(u), trial_starts(starts)])
    for component, part in enumerate(sde.domain):
        values = x[:, component]
        outside = ~np.asarray(part.contains(values))
        if outside.any():
            raise ValueError(
                f"`starts` must lie inside the domain: component {component} has the domain "
                f"{part}, and the law reaches {values[outside][0]:.4g}. Use `diracflow.LogNormal` "
                "for positive components, `diracflow.Uniform` for intervals, or a "
                "`diracflow.Product` of such laws."
            )


def check_coefficients(
    sde: SDE, starts: AbstractLaw, start_time: float | None, horizon: float
) -> None:
    """Raise if a coefficient is not finite at a start, or noise does not reach every component."""
    x0 = trial_starts(starts)
    for tau in (0.0, horizon):
        drift, sigma, jacobian, t = coefficients(sde, start_time, jnp.asarray(tau), x0)
        where = functools.partial(_draw_text, sde, t, x0)
        _require_finite("drift", drift, where)
        _require_finite("diffusion", sigma, where)
        _require_reached(np.asarray(sigma), np.asarray(jacobian), where)


def is_degenerate_at(sde: SDE, start_time: float | None, x0: Float[Array, "n d+k"]) -> bool:
    r"""Return `True` if the covariance $\Sigma$ is singular at one of the starts `x0`."""
    _, sigma, _, _ = coefficients(sde, start_time, jnp.zeros(()), x0)
    return bool(np.any(_lacks_rank(np.asarray(sigma, dtype=np.float64))))


def trial_starts(starts: AbstractLaw) -> Float[Array, "n d+k"]:
    """Return the draws of a law at which coefficients are checked."""
    return starts.sample(jr.key(0), (_TRIALS,))


def _draw_text(sde: SDE, t: Float[Array, " n"], x0: Float[Array, "n d+k"], index: int) -> str:
    x, tail = np.split(np.asarray(x0[index]), [sde.dim])
    params = "".join(f", {n}={value:.4g}" for n, value in zip(sde.params, tail, strict=False))
    return f"t={float(t[index]):g}, x={_shown(x)}{params}, a draw of the start law"


@eqx.filter_jit
def coefficients(
    sde: SDE, start_time: float | None, tau: Float[Array, ""], x0: Float[Array, "n d+k"]
) -> tuple[Float[Array, "n d"], Float[Array, "n d m"], Float[Array, "n d d"], Float[Array, " n"]]:
    """Return drift, diffusion, drift Jacobian and time, at the time `tau` after the start."""

    def one(g: Float[Array, " d+k"]) -> tuple[Array, Array, Array, Array]:
        member, x, s = initial_condition(sde, start_time, g)
        t = s + tau
        drift_jacobian = jax.jacfwd(lambda y: member.drift(t, y))(x)
        return member.drift(t, x), member.diffusion(t, x), drift_jacobian, t

    return jax.vmap(one)(x0)


def _require_finite(name: str, values: Array, where: Callable[[int], str]) -> None:
    good = np.all(np.isfinite(values), axis=tuple(range(1, values.ndim)))
    if not good.all():
        worst = int(np.argmin(good))
        raise ValueError(
            f"`{name}` is not finite at {where(worst)}; it is {_shown(values[worst])}."
        )


def _require_reached(sigma: np.ndarray, jacobian: np.ndarray, where: Callable[[int], str]) -> None:
    unreached = _lacks_rank(sigma)
    if unreached.any():
        unreached[unreached] = _lacks_rank(_reach(sigma[unreached], jacobian[unreached]))
    if unreached.any():
        worst, dim = int(np.argmax(unreached)), sigma.shape[1]
        reach = _reach(sigma[[worst]], jacobian[[worst]])[0]
        rank = np.linalg.matrix_rank(reach, tol=_SINGULAR * float(np.linalg.norm(reach, 2)))
        raise ValueError(
            "Noise must reach every component, directly or through the drift; at "
            f"{where(worst)}, it reaches {rank} of {dim} "
            f"directions: the diffusion is {_shown(sigma[worst])}, the Jacobian of the drift is "
            f"{_shown(jacobian[worst])}. Add a little noise to the components that it does not "
            "reach, or remove components that are functions of the others."
        )


def _reach(sigma: np.ndarray, jacobian: np.ndarray) -> Float[np.ndarray, "n d k"]:
    r"""Return Kalman's matrix $(\sigma, A\sigma, \dots)$, with $A$ and all rows normalised."""
    rates = np.linalg.norm(np.nan_to_num(jacobian), axis=(1, 2), keepdims=True)
    unit = np.nan_to_num(jacobian) / np.where(rates > 0, rates, 1.0)
    blocks = [sigma]
    for _ in range(sigma.shape[1] - 1):
        blocks.append(unit @ blocks[-1])
    reach = np.concatenate(blocks, axis=2)
    sizes = np.linalg.norm(reach, axis=2, keepdims=True)
    return reach / np.where(sizes > 0, sizes, 1.0)


def _lacks_rank(matrices: Float[np.ndarray, "n d k"]) -> Bool[np.ndarray, " n"]:
    values = np.linalg.svd(matrices, compute_uv=False)
    dim = matrices.shape[1]
    smallest = values[:, dim - 1] if values.shape[1] == dim else np.zeros(len(values))
    return smallest <= _SINGULAR * np.maximum(values[:, 0], 1e-300)


def _shown(values: Array | np.ndarray) -> str:
    return np.array2string(np.asarray(values), precision=4, separator=", ").replace("\n", "")
