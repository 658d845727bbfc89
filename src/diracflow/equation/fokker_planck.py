r"""The Fokker--Planck operator, written for log-densities.

A density $p = e^q$ of $dX = b\,dt + \sigma\,dW$ obeys
$\partial_t p = \nabla\cdot[-b\,p + \tfrac12\nabla\cdot(\Sigma p)]$ with
$\Sigma = \sigma\sigma^\top$. We divide by $p$ and keep $q$ throughout, because $p$ underflows in
the tails, where collocation points still carry information.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..sde.sde import SDE


def log_density_rate(
    sde: SDE,
    log_density: Callable[[Float[Array, " d"]], Float[Array, ""]],
    t: Float[Array, ""],
    x: Float[Array, " d"],
) -> Float[Array, ""]:
    r"""Return the time derivative that the Fokker--Planck equation assigns to a log-density.

    For $q$ the log-density at time $t$, this is

    $$-\nabla\cdot b - b\cdot\nabla q
      + \tfrac12\Sigma : (\nabla^2 q + \nabla q\,\nabla q^\top)
      + (\nabla\cdot\Sigma)\cdot\nabla q + \tfrac12\nabla\cdot\nabla\cdot\Sigma.$$

    **Arguments:**

    - `sde`: supplies $b$ and $\sigma$.
    - `log_density`: the function $q$ of the state alone; need not be normalised.
    - `t`: the time at which the coefficients are evaluated.
    - `x`: a single point. Use `jax.vmap` for several.

    **Returns:**

    A scalar. $\Sigma : \nabla^2 q$ is the sum of the second derivatives along the columns of
    $\sigma$, so the cost is one gradient and one Hessian-vector product per column.
    """
    sigma = sde.diffusion(t, x)
    grad_q, hessian_times = jax.linearize(jax.grad(log_density), x)
    curvature = jnp.sum(sigma * jax.vmap(hessian_times, 1, 1)(sigma))
    div_drift = jnp.trace(jax.jacfwd(sde.drift, argnums=1)(t, x))

    def div_cov(y: Float[Array, " d"]) -> Float[Array, " d"]:
        return jnp.einsum("ijj->i", jax.jacfwd(sde.covariance, argnums=1)(t, y))

    transport = -div_drift - sde.drift(t, x) @ grad_q
    spreading = curvature + jnp.sum((sigma.T @ grad_q) ** 2)
    inhomogeneity = 2 * div_cov(x) @ grad_q + jnp.trace(jax.jacfwd(div_cov)(x))
    return transport + 0.5 * (spreading + inhomogeneity)
