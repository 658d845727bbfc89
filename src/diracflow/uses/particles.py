"""Operations on the particles of a filter: initialise, move, reweight, summarise and resample."""

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
# Particles are resampled if the effective sample size is below this fraction of their number.
_RESAMPLE_BELOW = 0.5


def moved(
    density: AbstractTransitionDensity,
    key: PRNGKeyArray,
    x: Float[Array, "n d"],
    gap: Float[Array, ""],
    conditioning: dict[str, Any],
) -> Float[Array, "n d"]:
    """Draw the next state of each particle; `conditioning` holds keyword arguments of a query."""
    # Densities are not defined at time zero, so an observation at the start needs no jump.
    positive = gap > 0
    any_time = min(1.0, density.horizon)
    new = density.sample(key, jnp.where(positive, gap, any_time), x, **conditioning)
    return jnp.where(positive, new, x)


def reweighted(
    observe: Observe, x: Array, weights: Array, y: Array, observed: Array
) -> tuple[Float[Array, " n"], Float[Array, ""]]:
    """Return the normalised weights after an observation, and its log-evidence."""
    log_likelihoods = jax.vmap(lambda x: jnp.asarray(observe(x, y), x.dtype))(x)
    log_weights = jnp.log(weights) + jnp.where(observed, log_likelihoods, 0.0)
    log_evidence = jax.nn.logsumexp(log_weights)
    return jnp.exp(log_weights - log_evidence), jnp.where(observed, log_evidence, 0.0)


def summary(x: Array, weights: Array, levels: Array) -> dict[str, Array]:
    """Return mean, variance and quantiles of each component."""
    mean = weights @ x
    by_component = jax.vmap(weighted_quantiles, (1, None, None), 1)
    return {
        "means": mean,
        "variances": weights @ (x - mean[None]) ** 2,
        "quantiles": by_component(x, weights, levels),
    }


def resampled(key: PRNGKeyArray, x: Array, weights: Array, fraction: Array) -> tuple[Array, Array]:
    """Resample the particles if `fraction`, the effective sample size over $n$, is too small."""

    def equal_weights() -> tuple[Array, Array]:
        return x[systematic(key, weights, len(x))], jnp.full_like(weights, 1 / len(x))

    return jax.lax.cond(fraction < _RESAMPLE_BELOW, equal_weights, lambda: (x, weights))


def initial_particles(
    key: PRNGKeyArray, density: AbstractTransitionDensity, initial: Any, count: int
) -> Float[Array, "particles d"]:
    """Draw `count` states from the initial law."""
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
