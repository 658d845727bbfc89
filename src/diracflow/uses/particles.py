"""Particles of a filter: where they start, how they move and what they weigh."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..sde.argument_checks import real_numbers
from ..sde.laws import AbstractLaw
from ..transition.transition_density import AbstractTransitionDensity
from .weights import systematic, weighted_quantiles

Observe = Callable[[Float[Array, " d"], Array], Float[Array, ""]]
# Effective share below which particles are drawn anew.
_RESAMPLE_BELOW = 0.5


def moved(
    density: AbstractTransitionDensity,
    key: PRNGKeyArray,
    x: Float[Array, "n d"],
    gap: Float[Array, ""],
    keywords: dict[str, Any],
) -> Float[Array, "n d"]:
    """Each particle after one draw from its own transition law.

    `keywords` are those of the density's queries: parameters, the time of the start.
    """
    # An observation at the start itself comes without a jump, and densities with no time zero.
    positive = gap > 0
    new = density.sample(key, jnp.where(positive, gap, _any_time(density)), x, **keywords)
    return jnp.where(positive, new, x)


def _any_time(density: AbstractTransitionDensity) -> float:
    return min(1.0, density.horizon)


def reweighted(
    observe: Observe, x: Array, weights: Array, y: Array, observed: Array
) -> tuple[Float[Array, " n"], Float[Array, ""]]:
    """Weights of sum one after an observation, and the log-density of the observation."""
    log_likelihoods = jax.vmap(lambda x: jnp.asarray(observe(x, y), x.dtype))(x)
    log_weights = jnp.log(weights) + jnp.where(observed, log_likelihoods, 0.0)
    log_evidence = jax.nn.logsumexp(log_weights)
    return jnp.exp(log_weights - log_evidence), jnp.where(observed, log_evidence, 0.0)


def summary(x: Array, weights: Array, levels: Array) -> dict[str, Array]:
    """Mean, variance and quantiles of each component."""
    mean = weights @ x
    by_component = jax.vmap(weighted_quantiles, (1, None, None), 1)
    return {
        "means": mean,
        "variances": weights @ (x - mean[None]) ** 2,
        "quantiles": by_component(x, weights, levels),
    }


def refreshed(key: PRNGKeyArray, x: Array, weights: Array, share: Array) -> tuple[Array, Array]:
    """Particles and weights as they are, or drawn anew where too few carry the weight."""

    def drawn_anew() -> tuple[Array, Array]:
        return x[systematic(key, weights, len(x))], jnp.full_like(weights, 1 / len(x))

    return jax.lax.cond(share < _RESAMPLE_BELOW, drawn_anew, lambda: (x, weights))


def initial_particles(
    key: PRNGKeyArray, density: AbstractTransitionDensity, initial: Any, count: int
) -> Float[Array, "particles d"]:
    """Draws of the law of the state before anything is observed."""
    law = getattr(density, "starts", None) if initial is None else initial
    if law is None:
        raise ValueError(
            f"A {type(density).__name__} has no law of starts; pass `initial`: a law, draws of it "
            "or a known state."
        )
    if isinstance(law, AbstractLaw):
        return law.expand(density.dim).sample(key, (count,))
    draws = jnp.atleast_2d(jnp.asarray(real_numbers("initial", law)))
    if draws.ndim != 2 or draws.shape[1] != density.dim or len(draws) == 0:
        raise ValueError(
            f"`initial` must be a law, draws of shape (n, {density.dim}) or one state of shape "
            f"({density.dim},); got shape {np.shape(law)}."
        )
    if not bool(jnp.all(jnp.isfinite(draws))):
        raise ValueError("`initial` must be finite.")
    return draws if len(draws) == count else jr.choice(key, draws, (count,))
