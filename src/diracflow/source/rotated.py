"""SDE and source in the coordinates along the axes of a basis."""

import equinox as eqx
import jax.numpy as jnp
from jax.tree_util import Partial
from jaxtyping import Array, Float

from ..equation.moving_frame import Basis, Frame
from ..sde.parameters import Params
from ..sde.sde import SDE
from .gaussian_source import AbstractGaussianSource


class RotatedSource(AbstractGaussianSource):
    """A source for the rotated SDE, used as a source for the original SDE."""

    sde: SDE
    start_time: float | None = eqx.field(static=True)
    basis: Basis
    rotated: AbstractGaussianSource

    def __init__(self, sde: SDE, basis: Basis, rotated: AbstractGaussianSource):
        self.sde, self.basis, self.rotated = sde, basis, rotated
        self.start_time = rotated.start_time

    def frame(self, tau: Float[Array, ""], x0: Float[Array, " d+k"]) -> Frame:
        """Return the mean and the factor of the rotated source; the factor refers to the basis."""
        start, rest = jnp.split(x0, [self.sde.dim])
        frame = self.rotated.frame(tau, jnp.concatenate([self.basis.along(start), rest]))
        return Frame(self.basis.state(frame.mean), frame.factor, self.basis)


def rotated_sde(sde: SDE, basis: Basis) -> SDE:
    """Return the SDE of the coordinates along the axes of `basis`."""
    coefficients = Partial(_drift, sde, basis), Partial(_diffusion, sde, basis)
    return SDE(*coefficients, sde.dim, params=sde.params)


def _drift(sde: SDE, basis: Basis, t: Array, y: Array, *params: Params) -> Float[Array, " d"]:
    member = sde.at(*params) if params else sde
    return basis.along(member.drift(t, basis.state(y)))


def _diffusion(sde: SDE, basis: Basis, t: Array, y: Array, *params: Params) -> Float[Array, "d m"]:
    member = sde.at(*params) if params else sde
    return basis.along(member.diffusion(t, basis.state(y)))
