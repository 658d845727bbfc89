"""Importance weights: effective sample size, resampling and quantiles."""

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Int


class WeightsVanished(RuntimeError):
    """All importance weights are zero or undefined, so the target law cannot be estimated."""


def effective_fraction(weights: Float[Array, " n"]) -> Float[Array, ""]:
    r"""Return the effective sample size divided by $n$, $(\sum w)^2 / (n \sum w^2)$.

    It is one for equal weights and $1/n$ if one draw carries all the weight.
    """
    return jnp.sum(weights) ** 2 / (len(weights) * jnp.sum(weights**2))


def systematic(
    u: Float[ArrayLike, ""], weights: Float[Array, " n"], count: int
) -> Int[Array, " count"]:
    r"""Return the indices of `count` draws by systematic resampling, from one uniform number.

    A draw of weight $w$ is repeated $\lfloor nw \rfloor$ or $\lceil nw \rceil$ times, where $n$ is
    `count`. This adds less noise than independent resampling.
    """
    cumulated = jnp.cumsum(weights)
    comb = (jnp.arange(count) + u) / count
    # Rounding of the cumulated sum may leave the last point of the comb beyond it.
    picked = jnp.searchsorted(cumulated, comb * cumulated[-1], side="right")
    return jnp.minimum(picked, len(weights) - 1)


def weighted_quantiles(
    values: Float[Array, " n"], weights: Float[Array, " n"], levels: Float[Array, " q"]
) -> Float[Array, " q"]:
    """Return, for each of `levels`, the smallest value whose cumulated weight reaches it."""
    order = jnp.argsort(values)
    cumulated = jnp.cumsum(weights[order])
    reached = jnp.searchsorted(cumulated, levels * cumulated[-1])
    return values[order][jnp.minimum(reached, len(values) - 1)]
