"""Detection of coefficients that depend on time."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .fingerprint import coefficients
from .sde import SDE

# Fractions of the time span at which coefficients are compared. Multiples of the golden ratio are
# far from simple fractions, so that periodic coefficients are detected.
_SHARES = (*np.modf(np.arange(1, 8) * (np.sqrt(5) - 1) / 2)[0].tolist(), 1.0)


def first_change(
    sde: SDE, start: float, span: float, g: Float[Array, "n d+k"]
) -> tuple[str, float] | None:
    """Return the name of a coefficient that changes with time, and a time at which it has changed.

    Return `None` if neither coefficient changes.
    """

    def at(share: float) -> tuple[np.ndarray, np.ndarray]:
        return coefficients(sde, start, jnp.full(len(g), share * span, g.dtype), g)

    before = at(0.0)
    for share in _SHARES:
        for name, first, values in zip(("drift", "diffusion"), before, at(share), strict=True):
            # Coefficients that do not depend on time agree bit for bit.
            if not np.array_equal(values, first, equal_nan=True):
                return name, start + share * span
    return None
