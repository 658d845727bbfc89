r"""One step of the Bogacki--Shampine pair, of order three with an embedded error estimate.

The error is measured by its effect on the density: for a change $e$ of the parameters,
$\sqrt{e^\top G e}$ is the root mean square change of the log-density in nats, where $G$ is the Gram
(Fisher) matrix. This norm does not depend on the parametrisation of the flow.
"""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..galerkin.velocity import Velocity

# Sums of a few vectors stay in NumPy, because compiling them gains nothing.
Parameters = Float[np.ndarray, " m"]
VectorField = Callable[[Parameters, float], Velocity]


class Step(eqx.Module):
    """Parameters and velocity at the end of a step."""

    theta: Parameters
    end: Velocity
    error: float  # estimated, in nats


def bogacki_shampine(
    field: VectorField, theta: Parameters, clock: float, length: float, start: Velocity
) -> Step:
    """Take one step.

    **Arguments:**

    - `field`: velocity as a function of parameters and clock.
    - `theta`: parameters at the start of the step.
    - `clock`: clock at the start of the step.
    - `length`: length of the step.
    - `start`: velocity at the start of the step.
    """

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
    """Return the root mean square change of the log-density for a small change of parameters."""
    return jnp.sqrt(jnp.maximum(change @ gram @ change, 0.0))
