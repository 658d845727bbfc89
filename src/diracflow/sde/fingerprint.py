"""Values of an SDE's coefficients, by which it is recognised."""

import jax
import numpy as np
from jaxtyping import Array, Float

from .conditioning import initial_condition
from .sde import SDE


def coefficients(
    sde: SDE, start_time: float | None, tau: Float[Array, " n"], g: Float[Array, "n d+k"]
) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "n d m"]]:
    """Drift and diffusion at the times `tau` after the start, at what is given there."""

    def at(tau: Float[Array, ""], g: Float[Array, " d+k"]) -> tuple[Array, Array]:
        member, x, s = initial_condition(sde, start_time, g)
        return member.drift(s + tau, x), member.diffusion(s + tau, x)

    drift, diffusion = jax.vmap(at)(tau, g)
    return np.asarray(drift), np.asarray(diffusion)
