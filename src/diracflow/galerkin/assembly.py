r"""Rows of the least-squares problem for $\dot\theta$.

With $q = \log P$ the Dirac--Frenkel principle asks for the $\eta$ that makes
$\nabla_\theta q\cdot\eta$ closest to the forcing

$$f = \mathcal{A}_{s+\tau}[q] - \partial_\tau q|_\theta,$$

the part of the Fokker--Planck rate that the moving source does not already supply. (The paper
prints a plus before the second term; its own residual requires the minus. For a Brownian motion
the source is exact and $f$ must vanish.)
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..flow.ansatz import Ansatz
from ..problem.fokker_planck import log_density_rate
from .collocation import Draws


class Rows(eqx.Module):
    """Jacobian and forcing at the collocation points, centred."""

    jacobian: Float[Array, "n m"]
    forcing: Float[Array, " n"]


def assemble(
    ansatz: Ansatz, theta: Float[Array, " m"], tau: Float[Array, ""], draws: Draws
) -> Rows:
    r"""Jacobian and forcing over all draws.

    Under the current density both have mean zero for every start, since $\int P = 1$ is kept by
    $\theta$ and by the Fokker--Planck equation. Taking off the sample mean removes noise only.
    """
    jacobian, forcing = jax.vmap(lambda x0, noise: row(ansatz, theta, tau, x0, noise))(
        draws.x0, draws.noise
    )
    return Rows(jacobian - jnp.mean(jacobian, axis=0, keepdims=True), forcing - jnp.mean(forcing))


def row(
    ansatz: Ansatz,
    theta: Float[Array, " m"],
    tau: Float[Array, ""],
    x0: Float[Array, " d"],
    noise: Float[Array, " d"],
) -> tuple[Float[Array, " m"], Float[Array, ""]]:
    r"""$\nabla_\theta q$ and $f$ at the point to which `noise` is carried from `x0`."""
    x = ansatz.at(theta).from_noise(noise, tau, x0)
    jacobian = jax.grad(lambda theta: ansatz.at(theta).log_prob(x, tau, x0))(theta)
    return jacobian, forcing(ansatz.at(theta), x, tau, x0)


def forcing(
    ansatz: Ansatz, x: Float[Array, " d"], tau: Float[Array, ""], x0: Float[Array, " d"]
) -> Float[Array, ""]:
    r"""$\mathcal{A}[q] - \partial_\tau q$ at fixed $\theta$."""
    source = ansatz.source
    rate = log_density_rate(
        source.sde, lambda y: ansatz.log_prob(y, tau, x0), source.start_time + tau, x
    )
    return rate - jax.grad(ansatz.log_prob, argnums=1)(x, tau, x0)
