"""Whether an SDE is the same at all times."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .fingerprint import coefficients
from .sde import SDE

# Shares of the time span at which coefficients are compared. Multiples of the golden section are as
# far as can be from simple fractions, so that a period of the coefficients does not hide from them.
_SHARES = (*np.modf(np.arange(1, 8) * (np.sqrt(5) - 1) / 2)[0].tolist(), 1.0)


def first_change(
    sde: SDE, start: float, span: float, g: Float[Array, "n d+k"]
) -> tuple[str, float] | None:
    """The coefficient that changes over `span` from `start` on, and a time when it has.

    Looked at where it is given, parameters behind the state; `None` if none changes there.
    """

    def at(share: float) -> tuple[np.ndarray, np.ndarray]:
        return coefficients(sde, start, jnp.full(len(g), share * span, g.dtype), g)

    before = at(0.0)
    for share in _SHARES:
        for name, first, values in zip(("drift", "diffusion"), before, at(share), strict=True):
            # Equal operations on equal numbers: a coefficient without time is equal to the bit.
            if not np.array_equal(values, first, equal_nan=True):
                return name, start + share * span
    return None
