r"""Gaussian approximation of the start, given the end.

As a function of $x_0$ the transition density $\rho(x | t, x_0)$ is, for short times, nearly a
Gaussian about $x - t\,b$ with covariance $t\,\Sigma$. One Newton step from $x_0 = x$ finds it, and
is exact for linear SDEs at any time.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..equation.moving_frame import Frame
from ..transition.transition_density import AbstractTransitionDensity

# Variances are enlarged by this factor, so that the tails of the Gaussian lie above those of the
# density and importance weights stay bounded.
_WIDENING = 1.3


def reversed_gaussian(
    density: AbstractTransitionDensity,
    state: Any,
    x: Float[Array, " d"],
    tail: Float[Array, " k"],
    widest: Float[Array, ""],
) -> Frame:
    """Return the Gaussian of starts for one end point `x`; `state` is `density._at_time(t)`.

    `tail` is appended to every start. Standard deviations are at most `widest`, for densities that
    hardly depend on the start.
    """

    def log_prob(x0: Float[Array, " d"]) -> Float[Array, ""]:
        return density._log_prob(state, x, jnp.concatenate([x0, tail]))

    gradient, hessian = jax.grad(log_prob)(x), jax.hessian(log_prob)(x)
    # The derivatives are undefined at points that no start reaches; any Gaussian is valid there.
    known = jnp.all(jnp.isfinite(hessian)) & jnp.all(jnp.isfinite(gradient))
    precision, axes = jnp.linalg.eigh(jnp.where(known, -hessian, jnp.eye(len(x))))
    variances = 1 / jnp.maximum(precision, widest**-2)
    step = axes @ (variances * (axes.T @ jnp.where(known, gradient, 0.0)))
    covariance = _WIDENING * axes @ jnp.diag(variances) @ axes.T
    return Frame(x + step, jnp.linalg.cholesky(covariance))
