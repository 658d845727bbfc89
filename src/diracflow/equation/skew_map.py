r"""A triangular map from the standard normal law to a law with given third cumulants.

For standardised coordinates $\zeta$ with the symmetric tensor $\kappa$ of third cumulants, the map
$z\mapsto\zeta$ has the components

$$\zeta_i = \tfrac12\sum_{j,k<i}\kappa_{ijk}(z_jz_k - \delta_{jk}) + e^{a_i}\varphi(z_i),\qquad
  a_i \approx \tfrac12\sum_{j<i}\kappa_{iij}z_j,\quad
  \varphi(z) \approx z + \tfrac16\kappa_{iii}(z^2 - 1).$$

To first order in $\kappa$ its law has the density of Edgeworth's expansion. Unlike that, it is
positive and has unit mass for every $\kappa$: $a_i$ is bounded, and the slope of $\varphi$ is
between 0.1 and 1.9. Both the map and its inverse are explicit and smooth.
"""

import functools
import itertools

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

# The slope of the quadratic parts stays between 1 - _SLOPE and 1 + _SLOPE.
_SLOPE = 0.9


@functools.cache
def _places(dim: int) -> tuple[Int[np.ndarray, "m 3"], Int[np.ndarray, "d d d"]]:
    """Return the entries of a symmetric tensor that are stored, and where each entry is found."""
    stored = [(i, j, k) for i in range(dim) for j in range(i + 1) for k in range(j + 1)]
    # A program traced in float32 cannot index by int64 after one in float64 did.
    where = np.zeros((dim, dim, dim), dtype=np.int32)
    for place, entry in enumerate(stored):
        for permuted in itertools.permutations(entry):
            where[permuted] = place
    return np.array(stored, np.int32), where


def shape_size(dim: int) -> int:
    """Return the number of different third cumulants."""
    return dim * (dim + 1) * (dim + 2) // 6


def packed(cumulants: Float[Array, "d d d"]) -> Float[Array, " m"]:
    """Return the different entries of a symmetric tensor."""
    i, j, k = _places(len(cumulants))[0].T
    return cumulants[i, j, k]


def unpacked(shape: Float[Array, " m"], dim: int) -> Float[Array, "d d d"]:
    """Return the symmetric tensor with the entries `shape`."""
    return shape[_places(dim)[1]]


def from_normal(z: Float[Array, " d"], shape: Float[Array, " m"]) -> Float[Array, " d"]:
    """Return the coordinates to which the map takes `z`.

    **Arguments:**

    - `z`: a point, standard normal.
    - `shape`: the third cumulants, see `packed`.
    """
    cumulants = unpacked(shape, len(z))
    rows = [_row(cumulants, z[:i], i) for i in range(len(z))]
    shifts, scales, quadratic = (jnp.stack(parts) for parts in zip(*rows, strict=True))
    return shifts + jnp.exp(scales) * _bent(quadratic, z)


def to_normal(
    zeta: Float[Array, " d"], shape: Float[Array, " m"]
) -> tuple[Float[Array, " d"], Float[Array, ""]]:
    """Return the inverse of `from_normal`, and the logarithm of its determinant."""
    cumulants = unpacked(shape, len(zeta))
    z, log_det = jnp.zeros((0,), zeta.dtype), jnp.zeros((), zeta.dtype)
    for i in range(len(zeta)):
        shift, scale, quadratic = _row(cumulants, z, i)
        found, log_slope = _straightened(quadratic, (zeta[i] - shift) * jnp.exp(-scale))
        z, log_det = jnp.append(z, found), log_det - log_slope - scale
    return z, log_det


def _row(cumulants: Array, before: Float[Array, " i"], i: int) -> tuple[Array, Array, Array]:
    """Return shift and log-scale of a component given those before it, and its own cumulant."""
    block = cumulants[i, :i, :i]
    shift = 0.5 * (before @ block @ before - jnp.trace(block))
    return shift, jnp.tanh(0.5 * cumulants[i, i, :i] @ before), cumulants[i, i, i] / 6


def _bent(c: Array, z: Array) -> Array:
    r"""Return $z + c(z^2 - 1)$, continued with a bounded slope."""
    w = 2 * c * z / _SLOPE
    return z + 2 * c * z**2 / (1 + jnp.sqrt(1 + w**2)) - c


def _straightened(c: Array, y: Array) -> tuple[Array, Array]:
    """Return the inverse of `_bent`, and the logarithm of the slope of `_bent` there."""
    scaled = 2 * c * (y + c) / _SLOPE
    q = scaled + _SLOPE
    root = _SLOPE * jnp.sqrt(q**2 + 1 - _SLOPE**2)
    # Two forms of the solution of a quadratic equation. Each loses digits where the other is used.
    near = (y + c) * (scaled + 2 * _SLOPE) / jnp.where(q > 0, q + root, 1.0)
    divisor = jnp.where(q > 0, 1.0, 2 * c * (1 - _SLOPE**2))
    z = jnp.where(q > 0, near, _SLOPE * (q - root) / divisor)
    w = 2 * c * z / _SLOPE
    return z, jnp.log1p(_SLOPE * w / jnp.sqrt(1 + w**2))
