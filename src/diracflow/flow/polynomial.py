"""Low-degree polynomial paths through a layer."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

# Products are those of arguments up to this size. Far outside the bulk of a standard normal law a
# composition of squares would overflow; nothing is learned there.
_BULK = 10.0


class Quadratic(eqx.Module):
    """All monomials of degree one and two, combined linearly; zero at the start."""

    weight: Float[Array, "out monomials"]

    def __init__(self, in_size: int, out_size: int):
        self.weight = jnp.asarray(np.zeros((out_size, in_size + in_size * (in_size + 1) // 2)))

    def __call__(self, u: Float[Array, " in"]) -> Float[Array, " out"]:
        return self.weight @ jnp.concatenate([u, products(u)])


def products(u: Float[Array, " in"]) -> Float[Array, " products"]:
    """All monomials of degree two."""
    # Products with constant matrices: indexing would turn into scatters under differentiation.
    left, right = (np.eye(len(u))[index] for index in np.triu_indices(len(u)))
    bulk = jnp.clip(u, -_BULK, _BULK)
    return (jnp.asarray(left, u.dtype) @ bulk) * (jnp.asarray(right, u.dtype) @ bulk)
