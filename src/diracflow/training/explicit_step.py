r"""One step of the Bogacki--Shampine pair, of order three with an embedded error estimate.

The error is measured by what it does to the density: for a change $e$ of the parameters,
$\sqrt{e^\top G e}$ is the root mean square change of the log-density in nats, $G$ the Gram
(Fisher) matrix. It does not depend on how the flow is parametrised.

A step may use up its share of the budget, which is proportional to its length: the errors of all
steps then add up to no more than the budget, however many steps there are.
"""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..galerkin.velocity import Velocity

# Sums of a few vectors are left to NumPy: there is nothing to gain from compiling them.
Parameters = Float[np.ndarray, " m"]
VectorField = Callable[[Parameters, float], Velocity]


class Step(eqx.Module):
    """The end of a step, and the velocity there."""

    theta: Parameters
    end: Velocity
    error: float  # in nats


def bogacki_shampine(
    field: VectorField, theta: Parameters, clock: float, length: float, start: Velocity
) -> Step:
    """Advance `theta` by `length`; `start` is the velocity at `clock`."""

    def rate(theta: Parameters, clock: float) -> Parameters:
        return np.asarray(field(theta, clock).theta_dot)

    k1 = np.asarray(start.theta_dot)
    k2 = rate(theta + length * k1 / 2, clock + length / 2)
    k3 = rate(theta + 3 * length * k2 / 4, clock + 3 * length / 4)
    new = theta + length * (2 * k1 / 9 + k2 / 3 + 4 * k3 / 9)
    end = field(new, clock + length)
    error = length * (-5 * k1 / 72 + k2 / 12 + k3 / 9 - np.asarray(end.theta_dot) / 8)
    return Step(new, end, float(fisher_norm(error, start.normal.gram)))


@eqx.filter_jit
def fisher_norm(
    change: Float[Array | np.ndarray, " m"], gram: Float[Array, "m m"]
) -> Float[Array, ""]:
    """Root mean square change of the log-density, in nats, for a small change of parameters."""
    return jnp.sqrt(jnp.maximum(change @ gram @ change, 0.0))
