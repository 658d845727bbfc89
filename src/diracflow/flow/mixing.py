"""Linear mixing of all components."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


class Mixing(eqx.Module):
    r"""The linear map $x \mapsto (I + A)x$, which starts at the identity.

    A coupling turns axes only as far as idle and moved components let it; this turns them all.
    """

    deviation: Float[Array, "d d"]

    def __init__(self, dim: int):
        self.deviation = jnp.asarray(np.zeros((dim, dim)))

    def to_source(self, x: Float[Array, " d"]) -> tuple[Float[Array, " d"], Float[Array, ""]]:
        """The image of a state, and the log-determinant."""
        matrix = self._matrix(x)
        return matrix @ x, jnp.linalg.slogdet(matrix)[1]

    def from_source(self, z: Float[Array, " d"]) -> Float[Array, " d"]:
        """Inverse of `to_source`."""
        return jnp.linalg.inv(self._matrix(z)) @ z

    def _matrix(self, x: Array) -> Float[Array, "d d"]:
        return self.deviation + jnp.eye(len(x), dtype=x.dtype)
