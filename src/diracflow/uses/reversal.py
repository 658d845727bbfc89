r"""The Gaussian that resembles the start, given the end.

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

# Variances are enlarged by this factor, so that tails of the Gaussian lie above those of the
# density, and weights stay bounded.
_WIDENING = 1.3


class ReversedGaussian(eqx.Module):
    """A normal law of starts."""

    mean: Float[Array, " d"]
    factor: Float[Array, "d d"]  # lower triangular

    def from_noise(self, noise: Float[Array, " d"]) -> Float[Array, " d"]:
        """A draw, from standard normal numbers."""
        return self.mean + self.factor @ noise

    def log_prob(self, x0: Float[Array, " d"]) -> Float[Array, ""]:
        """Log-density at one start."""
        noise = solve_triangular(self.factor, x0 - self.mean, lower=True)
        return jnp.sum(norm.logpdf(noise)) - jnp.sum(jnp.log(jnp.diag(self.factor)))


def reversed_gaussian(
    density: AbstractTransitionDensity,
    state: Any,
    x: Float[Array, " d"],
    tail: Float[Array, " k"],
    widest: Float[Array, ""],
) -> ReversedGaussian:
    """The Gaussian at one point `x`.

    **Arguments:**

    - `density`, `state`: a transition density, and what `_at_time` made of the time.
    - `x`: the end.
    - `tail`: parameters of the SDE, which follow every start.
    - `widest`: a bound on the standard deviations, where the density hardly depends on the start.
    """

    def log_prob(x0: Float[Array, " d"]) -> Float[Array, ""]:
        return density._log_prob(state, x, jnp.concatenate([x0, tail]))

    slope, curvature = jax.grad(log_prob)(x), jax.hessian(log_prob)(x)
    # At ends that no start reaches there is no slope; any Gaussian will do.
    known = jnp.all(jnp.isfinite(curvature)) & jnp.all(jnp.isfinite(slope))
    precision, axes = jnp.linalg.eigh(jnp.where(known, -curvature, jnp.eye(len(x))))
    variances = 1 / jnp.maximum(precision, widest**-2)
    step = axes @ (variances * (axes.T @ jnp.where(known, slope, 0.0)))
    covariance = _WIDENING * axes @ jnp.diag(variances) @ axes.T
    return ReversedGaussian(x + step, jnp.linalg.cholesky(covariance))
