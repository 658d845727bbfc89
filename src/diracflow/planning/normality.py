r"""The distance of a law from its samples, after a map that should make them standard normal.

If $z$ has a density $(1 + r)$ relative to $N(0, I)$, then
$E[r^2] = \sum_\alpha E[h_\alpha(z)]^2$ over the normalised Hermite polynomials $h_\alpha$. If $r$
is small and smooth, those up to the fourth degree account for almost all of it: errors of mean,
covariance, skewness and kurtosis. The total variation is $\tfrac12E|r|$, which is
$\sqrt{E[r^2]/2\pi}$ if $r$ is distributed as a normal law.
"""

import functools
import itertools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

# Highest degree of the polynomials, and the dimension above which it is three.
_DEGREE, _MANY = 4, 6
# Coordinates are cut off here: one path far out must not decide.
_FARTHEST = 4.5


class Distance(NamedTuple):
    """A total variation distance, root mean square over starts, and its standard error."""

    value: float
    stderr: float


def distance_from_normal(z: Float[Array, "starts n d"]) -> Distance:
    """Return the distance of samples from the standard normal law.

    Where samples are not finite, the distance is infinite.
    """
    if not np.all(np.isfinite(np.asarray(z))):
        return Distance(math.inf, 0.0)
    squares, variances = map(np.asarray, _squared_coefficients(jnp.clip(z, -_FARTHEST, _FARTHEST)))
    mean = float(squares.mean())
    # The noise of a sum of squares; between starts the distance itself differs.
    noise = math.sqrt(float(variances.mean()) / len(squares))
    value = math.sqrt(max(mean, 0.0) / (2 * math.pi))
    above = math.sqrt(max(mean + noise, noise) / (2 * math.pi))
    return Distance(min(value, 1.0), above - value)


@functools.cache
def _polynomials(dim: int) -> Int[np.ndarray, "m degree"]:
    """Return the components in which each polynomial has a factor; `dim` stands for none."""
    degree = _DEGREE if dim <= _MANY else _DEGREE - 1
    chosen = itertools.combinations_with_replacement(range(dim + 1), degree)
    return np.array([row for row in chosen if row[0] < dim])


@jax.jit
def _squared_coefficients(z: Float[Array, "starts n d"]) -> tuple[Array, Array]:
    """Return sums of squared coefficients without bias, and the variance of each sum."""
    dim, count = z.shape[-1], z.shape[1]
    factors = _polynomials(dim)
    degrees = np.stack([(factors == component).sum(axis=1) for component in range(dim)], axis=1)

    def of_start(z: Float[Array, "n d"]) -> tuple[Array, Array]:
        one = jnp.ones_like(z)
        table = [one, z, (z**2 - 1) / math.sqrt(2), (z**3 - 3 * z) / math.sqrt(6)]
        table.append((z**4 - 6 * z**2 + 3) / math.sqrt(24))
        powers = jnp.stack(table)

        def coefficient(degree: Int[Array, " d"]) -> tuple[Array, Array]:
            values = jnp.prod(jnp.take_along_axis(powers, degree[None, None], axis=0)[0], axis=-1)
            return jnp.mean(values), jnp.var(values, ddof=1) / count

        means, noise = jax.lax.map(coefficient, jnp.asarray(degrees))
        return jnp.sum(means**2 - noise), jnp.sum(2 * noise**2 + 4 * noise * means**2)

    return jax.lax.map(of_start, z)
