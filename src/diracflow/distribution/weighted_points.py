r"""Weighted points that represent a law, and the estimates made from them.

Several sets of points represent the same law independently: scrambled Sobol sets, or quadrature
rules with different nodes. A mean is taken over each set. The estimate is the mean of these means,
and their spread is its standard error. One set of independent weighted draws is accepted as well.
"""

import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float
from scipy.special import ndtri

from ..sde.argument_checks import checked_count, checked_key
from ..sde.quasi_random import sobol

# Independently scrambled sets of quasi-random points.
SETS = 16
# Fewer points of a set for each column are not standardised.
_POINTS_PER_COLUMN = 8


class Estimate(NamedTuple):
    """An expectation and its standard error."""

    value: Float[Array, "*batch_and_value"]
    stderr: Float[Array, "*batch_and_value"]


class WeightedPoints(NamedTuple):
    """Sets of points of a law, with weights that add up to one along the second axis."""

    x: Float[Array, "sets n *batch d"]
    weights: Float[Array, "sets n *batch"]

    @eqx.filter_jit
    def mean(self, values: Float[Array, "sets n *batch"]) -> Estimate:
        """Return the expectation of a function from its values at the points."""
        extra = values.ndim - self.weights.ndim
        weights = self.weights.reshape(*self.weights.shape, *[1] * extra)
        # A node without weight may lie where the function overflows.
        means = jnp.sum(jnp.where(weights > 0, weights * values, 0.0), axis=1)
        value = jnp.mean(means, axis=0)
        if len(means) > 1:
            return Estimate(value, jnp.std(means, axis=0, ddof=1) / np.sqrt(len(means)))
        spread = jnp.sum((weights * (values - value[None, None])) ** 2, axis=(0, 1))
        return Estimate(value, jnp.sqrt(spread))

    @eqx.filter_jit
    def moments(self) -> tuple[Float[Array, "*batch d"], Float[Array, "*batch d d"]]:
        """Return mean and covariance."""
        mean = self.mean(self.x).value
        centred = self.x - mean[None, None]
        return mean, self.mean(centred[..., :, None] * centred[..., None, :]).value


def normal_sets(points: int, dim: int, key: Any) -> Float[np.ndarray, "sets n dim"]:
    """Return quasi-random standard normal points, at least `points` in all sets together."""
    count = checked_count("points", points)
    if isinstance(key, jax.Array) and isinstance(key, jax.core.Tracer):
        raise ValueError(
            "`key` must be a known seed here, because quasi-random points are made outside of "
            "`jit`; got a traced key. Pass an integer, or close over the key."
        )
    with jax.ensure_compile_time_eval():
        seed = tuple(np.asarray(jr.key_data(checked_key(key))).ravel().tolist())
    table = _normal_sets(2 ** max(0, int(np.ceil(np.log2(count / SETS)))), dim, seed)
    return table.astype(jnp.result_type(float), copy=False)


@functools.lru_cache(maxsize=16)
def _normal_sets(each: int, dim: int, seed: tuple[int, ...]) -> Float[np.ndarray, "sets n dim"]:
    with jax.ensure_compile_time_eval():
        keys = jr.split(jr.wrap_key_data(jnp.asarray(seed, jnp.uint32)), SETS)
        return np.stack([_standardised(ndtri(sobol(key, each, dim))) for key in keys])


def _standardised(z: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n dim"]:
    """Return the points with mean zero and unit covariance, if they are many.

    Moments of linear maps are then exact. The correction is of the size of the quasi-random error,
    and the bias that it causes is of the size of its square.
    """
    if len(z) < _POINTS_PER_COLUMN * z.shape[1]:
        return z
    centred = z - np.mean(z, axis=0)
    return np.linalg.solve(np.linalg.cholesky(centred.T @ centred / len(z)), centred.T).T
