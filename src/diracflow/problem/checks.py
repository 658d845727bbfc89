"""Whether an SDE can be learned from a given law of starts."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from .given import given
from .laws import AbstractLaw
from .sde import SDE

# Starts at which the coefficients are tried out.
_TRIALS = 256
# Share of a law beyond which no training draws.
_FAR = 1e-12


def check_starts(sde: SDE, starts: AbstractLaw) -> None:
    """Raise if a law has mass outside the domain of the SDE, as far as trainings draw from it."""
    dim = sde.dim
    far = jnp.asarray([_FAR, 1 - _FAR])
    # Along each axis of the law and along its diagonals, and at random.
    axes = jnp.full((dim, 2, dim), 0.5).at[jnp.arange(dim), :, jnp.arange(dim)].set(far)
    corners = jnp.broadcast_to(far[:, None], (2, dim))
    u = jnp.concatenate([axes.reshape(-1, dim), corners])
    x = np.concatenate([starts.transport(u), starts.sample(jr.key(0), (_TRIALS,))])
    for component, part in enumerate(sde.domain):
        values = x[:, component]
        outside = ~np.asarray(part.contains(values))
        if outside.any():
            raise ValueError(
                f"`starts` must lie inside the domain: component {component} lives in {part}, and "
                f"the law reaches {values[outside][0]:.4g}. Take `diracflow.LogNormal` for "
                "positive components, `diracflow.Uniform` for intervals, or `diracflow.Product` of "
                "such laws."
            )


def check_coefficients(
    sde: SDE, starts: AbstractLaw, start_time: float | None, horizon: float
) -> None:
    """Raise if a coefficient is not finite, or the covariance not positive definite, at a start.

    Draws of `starts` have parameters and the time of the start behind them, where these vary.
    """
    x0 = starts.sample(jr.key(0), (_TRIALS,))
    for tau in (0.0, horizon):
        drift, sigma, t = _coefficients(sde, start_time, jnp.asarray(tau), x0)
        where = _Where(sde, t, x0)
        _require_finite("drift", drift, where)
        _require_finite("diffusion", sigma, where)
        _require_definite(sigma, where)


class _Where(NamedTuple):
    """At what coefficients were tried out."""

    sde: SDE
    t: Float[Array, " n"]
    x0: Float[Array, "n d+k"]

    def shown(self, index: int) -> str:
        x, tail = np.split(np.asarray(self.x0[index]), [self.sde.dim])
        named = zip(self.sde.params, tail, strict=False)
        params = "".join(f", {name}={value:.4g}" for name, value in named)
        return f"t={float(self.t[index]):g}, x={_shown(x)}{params}, a draw of the start law"


@eqx.filter_jit
def _coefficients(
    sde: SDE, start_time: float | None, tau: Float[Array, ""], x0: Float[Array, "n d+k"]
) -> tuple[Float[Array, "n d"], Float[Array, "n d m"], Float[Array, " n"]]:
    def one(g: Float[Array, " d+k"]) -> tuple[Array, Array, Array]:
        member, x, s = given(sde, start_time, g)
        return member.drift(s + tau, x), member.diffusion(s + tau, x), s + tau

    return jax.vmap(one)(x0)


def _require_finite(name: str, values: Array, where: _Where) -> None:
    good = np.all(np.isfinite(values), axis=tuple(range(1, values.ndim)))
    if not good.all():
        worst = int(np.argmin(good))
        raise ValueError(
            f"`{name}` is not finite at {where.shown(worst)}; it is {_shown(values[worst])}."
        )


def _require_definite(sigma: Array, where: _Where) -> None:
    values = np.linalg.svd(np.asarray(sigma, dtype=np.float64), compute_uv=False)
    dim = sigma.shape[1]
    smallest = values[:, dim - 1] if values.shape[1] == dim else np.zeros(len(values))
    # Squared in the covariance: beyond this float64 cannot tell its Cholesky factor from singular.
    bad = smallest <= 1e-7 * np.maximum(values[:, 0], 1e-300)
    if bad.any():
        worst = int(np.argmax(bad))
        raise ValueError(
            "The covariance `diffusion @ diffusion.T` must be positive definite; at "
            f"{where.shown(worst)}, the diffusion is "
            f"{_shown(sigma[worst])} of rank below {dim}. Noise must reach every component."
        )


def _shown(values: Array | np.ndarray) -> str:
    return np.array2string(np.asarray(values), precision=4, separator=", ").replace("\n", "")
