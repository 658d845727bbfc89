"""A source whose coordinates are those along other axes than the state's."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..equation.moving_frame import Basis, Frame
from ..sde.sde import SDE
from .gaussian import AbstractGaussianSource


class TurnedSource(AbstractGaussianSource):
    """The Gaussian that another source gives for the turned SDE, seen by the SDE itself."""

    sde: SDE
    start_time: float | None = eqx.field(static=True)
    basis: Basis
    turned: AbstractGaussianSource

    def __init__(self, sde: SDE, basis: Basis, turned: AbstractGaussianSource):
        self.sde, self.basis, self.turned = sde, basis, turned
        self.start_time = turned.start_time

    def frame(self, tau: Float[Array, ""], x0: Float[Array, " d+k"]) -> Frame:
        """Mean and factor of the turned source, along the axes of the basis."""
        start, rest = jnp.split(x0, [self.sde.dim])
        frame = self.turned.frame(tau, jnp.concatenate([self.basis.along(start), rest]))
        return Frame(self.basis.state(frame.mean), frame.factor, self.basis)
