r"""Open intervals as images of the real line, for searches that know no bounds.

$\mathbb{R}$ stays itself, half lines are shifted exponentials, bounded intervals logistic curves.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

Interval = tuple[float, float]


def into_intervals(free: Float[Array, " k"], intervals: tuple[Interval, ...]) -> Float[Array, " k"]:
    """Points of the intervals, from any real numbers."""
    return jnp.stack([_into(u, *ends) for u, ends in zip(free, intervals, strict=True)])


def from_intervals(values: Float[ArrayLike, " k"], intervals: tuple[Interval, ...]) -> np.ndarray:
    """The real numbers that `into_intervals` carries to `values`."""
    return np.array(
        [_from(v, *ends) for v, ends in zip(np.asarray(values), intervals, strict=True)]
    )


def _into(u: Float[Array, ""], low: float, high: float) -> Float[Array, ""]:
    if np.isfinite(low) and np.isfinite(high):
        return low + (high - low) * jax.nn.sigmoid(u)
    if np.isfinite(low):
        return low + jnp.exp(u)
    return high - jnp.exp(-u) if np.isfinite(high) else u


def _from(v: float, low: float, high: float) -> float:
    if np.isfinite(low) and np.isfinite(high):
        return float(np.log(v - low) - np.log(high - v))
    if np.isfinite(low):
        return float(np.log(v - low))
    return float(-np.log(high - v)) if np.isfinite(high) else float(v)
