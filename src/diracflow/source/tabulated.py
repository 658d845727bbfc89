"""Frames that are computed once, for all programs that evaluate the same points at the same time.

`MomentSource` integrates an equation for each start. To do so in every program would take most of
their compile time and run time. `with_frame` appends the frame and its derivative in the clock to a
conditioning vector. `TabulatedSource` reads them from there.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..equation.moving_frame import Basis, Frame
from ..equation.skew_map import shape_size
from ..sde.conditioning import InitialCondition, initial_condition
from ..sde.sde import SDE
from .gaussian_source import AbstractGaussianSource
from .separation import RotatedSource


class TabulatedSource(AbstractGaussianSource):
    """A source whose frames are part of the conditioning vector, valid near one time.

    **Arguments:**

    - `source`: the source that the frames come from.
    """

    sde: SDE
    start_time: float | None = eqx.field(static=True)
    basis: Basis | None
    bent: bool = eqx.field(static=True)

    def __init__(self, source: AbstractGaussianSource):
        # Not the source itself, whose arrays programs would receive and not use.
        self.sde, self.start_time, self.bent = source.sde, source.start_time, source.skewed
        self.basis = source.basis if isinstance(source, RotatedSource) else None

    def initial_condition(self, x0: Float[Array, " n"]) -> InitialCondition:
        return initial_condition(self.sde, self.start_time, x0[: len(x0) - self._length])

    def frame(self, tau: Float[Array, ""], x0: Float[Array, " n"]) -> Frame:
        """Return the frame, to first order in the clock."""
        dim = self.sde.dim
        table = x0[len(x0) - self._length :]
        value, rate = table[:-1].reshape(2, -1)
        mean, factor, shape = jnp.split(
            value + (jnp.sqrt(tau) - table[-1]) * rate, [dim, dim + dim**2]
        )
        return Frame(mean, factor.reshape(dim, dim), self.basis, shape if self.skewed else None)

    @property
    def skewed(self) -> bool:
        return self.bent

    @property
    def _length(self) -> int:
        """The length of a frame, its derivative and the clock."""
        dim = self.sde.dim
        return 2 * (dim + dim**2 + (shape_size(dim) if self.skewed else 0)) + 1


def with_frame(
    source: AbstractGaussianSource,
    clock: Float[Array, ""],
    x0: Float[Array, " d+k"],
    moving: bool = True,
) -> Float[Array, " d+k+m"]:
    """Return a conditioning vector of `TabulatedSource`, for times near `clock` squared.

    If not `moving`, it is valid at that time only, and compiles in half the time.
    """

    def values(c: Float[Array, ""]) -> Float[Array, " m"]:
        frame = source.frame(c**2, x0)
        shape = [] if frame.shape is None else [frame.shape]
        return jnp.concatenate([frame.mean, frame.factor.ravel(), *shape])

    if moving:
        value, rate = jax.jvp(values, (clock,), (jnp.ones_like(clock),))
    else:
        value = values(clock)
        rate = jnp.zeros_like(value)
    return jnp.concatenate([x0, value, rate, clock[None]])
