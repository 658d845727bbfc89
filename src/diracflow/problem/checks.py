r"""Whether an SDE can be learned from a given law of starts.

Noise must reach every component: directly, if the covariance $\Sigma$ is positive definite, or
through the drift. Linearised at a start, with $A = \nabla b$, the law of $X$ after any time has a
density if and only if $(\sigma, A\sigma, \dots, A^{d-1}\sigma)$ has rank $d$: Kalman's condition.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float

from .laws import AbstractLaw
from .sde import SDE

# Starts at which the coefficients are tried out.
_TRIALS = 256
# Smallest singular value, relative to the largest, of what counts as regular. Squared in the
# covariance: beyond this float64 cannot tell its Cholesky factor from singular.
_SINGULAR = 1e-7


def check_coefficients(sde: SDE, starts: AbstractLaw, start_time: float, horizon: float) -> None:
    """Raise if a coefficient is not finite, or noise does not reach every component, at a start."""
    x0 = _trials(starts)
    for t in (start_time, start_time + horizon):
        drift, sigma, slopes = _coefficients(sde, jnp.asarray(t), x0)
        _require_finite("drift", drift, t, x0)
        _require_finite("diffusion", sigma, t, x0)
        _require_reached(np.asarray(sigma), np.asarray(slopes), t, x0)


def is_degenerate(sde: SDE, starts: AbstractLaw, start_time: float) -> bool:
    r"""Whether the covariance $\Sigma$ is singular at a draw of the start law."""
    return is_degenerate_at(sde, start_time, _trials(starts))


def is_degenerate_at(sde: SDE, t: float, x: Float[Array, "n d"]) -> bool:
    r"""Whether the covariance $\Sigma$ is singular at one of some points."""
    _, sigma, _ = _coefficients(sde, jnp.asarray(t), x)
    return bool(np.any(_lacks_rank(np.asarray(sigma, dtype=np.float64))))


def _trials(starts: AbstractLaw) -> Float[Array, "n d"]:
    return starts.sample(jr.key(0), (_TRIALS,))


@eqx.filter_jit
def _coefficients(
    sde: SDE, t: Float[Array, ""], x0: Float[Array, "n d"]
) -> tuple[Float[Array, "n d"], Float[Array, "n d m"], Float[Array, "n d d"]]:
    def at(x: Float[Array, " d"]) -> tuple[Array, Array, Array]:
        slopes = jax.jacfwd(lambda y: sde.drift(t, y))(x)
        return sde.drift(t, x), sde.diffusion(t, x), slopes

    return jax.vmap(at)(x0)


def _require_finite(name: str, values: Array, t: float, x0: Array) -> None:
    good = np.all(np.isfinite(values), axis=tuple(range(1, values.ndim)))
    if not good.all():
        worst = int(np.argmin(good))
        raise ValueError(
            f"`{name}` is not finite at t={t:g}, x={_shown(x0[worst])}, a draw of the start law; "
            f"it is {_shown(values[worst])}."
        )


def _require_reached(sigma: np.ndarray, slopes: np.ndarray, t: float, x0: Array) -> None:
    unreached = _lacks_rank(sigma)
    if unreached.any():
        unreached[unreached] = _lacks_rank(_reach(sigma[unreached], slopes[unreached]))
    if unreached.any():
        worst, dim = int(np.argmax(unreached)), sigma.shape[1]
        reach = _reach(sigma[[worst]], slopes[[worst]])[0]
        rank = np.linalg.matrix_rank(reach, tol=_SINGULAR * float(np.linalg.norm(reach, 2)))
        raise ValueError(
            f"Noise must reach every component, directly or through the drift; at t={t:g}, "
            f"x={_shown(x0[worst])}, a draw of the start law, it reaches {rank} of {dim} "
            f"directions: the diffusion is {_shown(sigma[worst])}, the drift's slopes are "
            f"{_shown(slopes[worst])}. Add a little noise to a component that it does not reach, "
            "or leave out a component that follows from the others."
        )


def _reach(sigma: np.ndarray, slopes: np.ndarray) -> Float[np.ndarray, "n d k"]:
    r"""Kalman's $(\sigma, A\sigma, \dots)$, with slopes and rows in units of their own."""
    rates = np.linalg.norm(np.nan_to_num(slopes), axis=(1, 2), keepdims=True)
    unit = np.nan_to_num(slopes) / np.where(rates > 0, rates, 1.0)
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
