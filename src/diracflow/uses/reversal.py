r"""Gaussian approximation of the start, given the end.

As a function of $x_0$ the transition density $\rho(x | t, x_0)$ is, for short times, nearly a
Gaussian about $x - t\,b$ with covariance $t\,\Sigma$. One Newton step from $x_0 = x$ finds it, and
is exact for linear SDEs at any time.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from ..transition.transition_density import AbstractTransitionDensity

# Variances are enlarged by this factor, so that the tails of the Gaussian lie above those of the
# density and importance weights stay bounded.
_WIDENING = 1.3


class ReversedGaussian(eqx.Module):
    """A Gaussian law of starts."""

    mean: Float[Array, " d"]
    factor: Float[Array, "d d"]  # lower triangular

    def from_noise(self, noise: Float[Array, " d"]) -> Float[Array, " d"]:
        """Transform standard normal numbers into a draw."""
        return self.mean + self.factor @ noise

    def log_prob(self, x0: Float[Array, " d"]) -> Float[Array, ""]:
        """Return the log-density at one start."""
        noise = solve_triangular(self.factor, x0 - self.mean, lower=True)
        return jnp.sum(norm.logpdf(noise)) - jnp.sum(jnp.log(jnp.diag(self.factor)))


def reversed_gaussian(
    density: AbstractTransitionDensity,
    state: Any,
    x: Float[Array, " d"],
    tail: Float[Array, " k"],
    widest: Float[Array, ""],
) -> ReversedGaussian:
    """Return the Gaussian for one end point `x`.

    **Arguments:**

    - `density`, `state`: a transition density, and its `_at_time(t)`.
    - `x`: the end point.
    - `tail`: parameters and start time, which are appended to every start.
    - `widest`: an upper bound on the standard deviations, for densities that hardly depend on the
        start.
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
    return ReversedGaussian(x + step, jnp.linalg.cholesky(covariance))
