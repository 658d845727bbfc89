r"""The path $\theta(\tau)$ of the parameters, a cubic Hermite spline with one cubic per step."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


class Trajectory(eqx.Module):
    r"""Knots in the clock $\sqrt\tau$, parameters there, and velocities at both ends of each step.

    Both velocities of an explicit step come from the points of that step. The next step uses other
    points, so the velocities on either side of a knot differ by sampling noise; mixing them would
    put that noise between the knots. Implicit steps are so long that this noise would dominate, and
    their stages scatter. Their slopes come from the knots alone.

    Before the first knot the flow is the identity, so the density is that of the source.
    """

    clocks: Float[np.ndarray, " k+1"]
    thetas: Float[np.ndarray, "k+1 m"]
    first: Float[np.ndarray, "k m"]  # velocity at the start of each step
    last: Float[np.ndarray, "k m"]  # velocity at the end of each step

    def __check_init__(self) -> None:
        steps, width = len(self.clocks) - 1, self.thetas.shape[-1]
        expected = [(steps + 1, width), (steps, width), (steps, width)]
        found = [table.shape for table in (self.thetas, self.first, self.last)]
        if found != expected:
            raise ValueError(
                f"{steps} steps need parameters and velocities of shapes {expected}; got {found}."
            )

    def __call__(self, tau: Float[Array, ""]) -> Float[Array, " m"]:
        """Return the parameters at time `tau` since the start."""
        clocks, thetas = jnp.asarray(self.clocks, tau.dtype), jnp.asarray(self.thetas, tau.dtype)
        if len(self.first) == 0:
            return thetas[0]
        # `clip` would halve the derivative at the last knot. Beyond it, by rounding of the horizon,
        # the last cubic is extrapolated.
        clock = jnp.where(tau > clocks[0] ** 2, jnp.sqrt(tau), clocks[0])
        left = jnp.clip(jnp.searchsorted(clocks, clock, side="right") - 1, 0, len(self.first) - 1)
        gap = clocks[left + 1] - clocks[left]
        u = (clock - clocks[left]) / gap
        slopes = [jnp.asarray(table, tau.dtype)[left] for table in (self.first, self.last)]
        rise = u * u * (3 - 2 * u)
        bend = gap * u * (1 - u) * ((1 - u) * slopes[0] - u * slopes[1])
        return thetas[left] + rise * (thetas[left + 1] - thetas[left]) + bend
