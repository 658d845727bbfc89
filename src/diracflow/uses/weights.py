r"""Weighted draws: what their weights are worth, and draws of equal weight made from them."""

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray


class WeightsVanished(RuntimeError):
    """No draw carries any weight: nothing can be said about the law asked for."""


def normalised(log_weights: Float[Array, " n"]) -> Float[Array, " n"]:
    """Weights of sum one."""
    return jax.nn.softmax(log_weights)


def effective_share(weights: Float[Array, " n"]) -> Float[Array, ""]:
    r"""$(\sum w)^2 / (n \sum w^2)$: one for equal weights, $1/n$ if one draw carries all.

    Means over the weighted draws are about as accurate as over this share of them, unweighted.
    """
    return jnp.sum(weights) ** 2 / (len(weights) * jnp.sum(weights**2))


def systematic(key: PRNGKeyArray, weights: Float[Array, " n"], count: int) -> Int[Array, " count"]:
    r"""Indices of `count` draws, each taken $\lfloor nw \rfloor$ or $\lceil nw \rceil$ times.

    One uniform number shifts a comb over the cumulated weights, which adds less noise than
    independent picks.
    """
    cumulated = jnp.cumsum(weights)
    comb = (jnp.arange(count) + jr.uniform(key)) / count
    # Cumulated rounding may leave the last tooth beyond the last sum.
    picked = jnp.searchsorted(cumulated, comb * cumulated[-1], side="right")
    return jnp.minimum(picked, len(weights) - 1)


def weighted_quantiles(
    values: Float[Array, " n"], weights: Float[Array, " n"], levels: Float[Array, " q"]
) -> Float[Array, " q"]:
    """The smallest values at which the cumulated weight reaches each of `levels`."""
    order = jnp.argsort(values)
    cumulated = jnp.cumsum(weights[order])
    reached = jnp.searchsorted(cumulated, levels * cumulated[-1])
    return values[order][jnp.minimum(reached, len(values) - 1)]
