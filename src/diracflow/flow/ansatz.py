r"""The ansatz: the source, transformed by a flow.

$$P(x | \theta, \tau, x_0) = p_Z(n_\theta(x | x_0) | \tau, x_0)\,|\det\nabla n_\theta|.$$

The density is positive and has unit mass for every $\theta$. With $n_\theta$ the identity at
$\tau = 0$, it starts from the Dirac measure.

Here $x_0$ is the conditioning vector: the start, followed by the parameters of the SDE and the
start time if these vary.

Points are expressed in the coordinates of the ansatz. The paper's flow acts on the state itself.
The other acts on the state in the frame of the source, in which the target is a standard normal
law at all times.
"""

import abc
from typing import ClassVar, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from ..equation.fokker_planck import log_density_rate
from ..equation.moving_frame import Frame, RatioEquation, ratio_equation
from ..source.gaussian_source import AbstractGaussianSource, standard_log_prob
from .coupling_flow import AbstractFlow


class AbstractAnsatz(eqx.Module):
    """A source and a flow; the parameters are the floating-point arrays of the flow.

    Methods take one point: `x`, `y` and `noise` have the shape of a state, `tau` (the time since
    the start) and `clock` (its square root) are scalars, and `x0` is a conditioning vector.
    """

    source: eqx.AbstractVar[AbstractGaussianSource]
    flow: eqx.AbstractVar[AbstractFlow]
    # `True` if the coordinates of the ansatz move with the density, so that points stay valid.
    standardised: ClassVar[bool]

    @property
    def theta(self) -> Float[Array, " m"]:
        """The parameters of the flow, as one vector."""
        if not jax.tree.leaves(eqx.filter(self.flow, eqx.is_inexact_array)):
            return jnp.zeros(0)
        return ravel_pytree(eqx.filter(self.flow, eqx.is_inexact_array))[0]

    def at(self, theta: Float[Array, " m"]) -> Self:
        """Return the ansatz with the parameters `theta`."""
        parameters, rest = eqx.partition(self.flow, eqx.is_inexact_array)
        if not jax.tree.leaves(parameters):
            return self
        _, unravel = ravel_pytree(parameters)
        return eqx.tree_at(lambda a: a.flow, self, eqx.combine(unravel(theta), rest))

    def log_prob(self, x: Array, tau: Array, x0: Array) -> Float[Array, ""]:
        """Return the log-density at the state `x`."""
        noise, log_det = self.to_noise(x, tau, x0)
        return standard_log_prob(noise) + log_det

    @abc.abstractmethod
    def to_noise(self, x: Array, tau: Array, x0: Array) -> tuple[Array, Array]:
        """Return the inverse of `from_noise`, and the logarithm of its determinant."""

    @abc.abstractmethod
    def from_noise(self, noise: Array, tau: Array, x0: Array) -> Float[Array, " d"]:
        """Return the state to which the ansatz maps standard normal `noise`."""

    @abc.abstractmethod
    def stages(self, noise: Array, tau: Array, x0: Array) -> Float[Array, "layers+1 d"]:
        """Return the images of `noise` in the source and after each layer, ending in the state."""

    @abc.abstractmethod
    def place(self, noise: Array, clock: Array, x0: Array) -> Float[Array, " d"]:
        """Return the image of `noise` in the coordinates of the ansatz."""

    @abc.abstractmethod
    def coordinates(self, x: Array, clock: Array, x0: Array) -> Float[Array, " d"]:
        """Return the state `x` in the coordinates of the ansatz."""

    @abc.abstractmethod
    def log_density(self, y: Array, clock: Array, x0: Array) -> Float[Array, ""]:
        """Return the log-density at `y`, up to a term that does not depend on the parameters."""

    def parameter_score(self, y: Array, clock: Array, x0: Array) -> Float[Array, " m"]:
        """Return the gradient of `log_density` in the parameters."""
        return jax.grad(lambda theta: self.at(theta).log_density(y, clock, x0))(self.theta)

    def forcing(self, y: Array, clock: Array, x0: Array) -> Float[Array, ""]:
        r"""Return the Fokker--Planck rate that the parameters must supply, per unit of clock.

        $f = \mathcal{A}[q] - \partial_c q|_\theta$. (The paper prints a plus before the second
        term, but its residual requires the minus. For a Brownian motion the source is exact and
        $f$ must vanish.)
        """
        return self.log_ratio_and_forcing(y, clock, x0)[1]

    @abc.abstractmethod
    def log_ratio_and_forcing(self, y: Array, clock: Array, x0: Array) -> tuple[Array, Array]:
        """Return the log-ratio of the density to the source, and `forcing`."""


class RawAnsatz(AbstractAnsatz):
    """The ansatz of the paper: the flow acts on the state itself."""

    source: AbstractGaussianSource
    flow: AbstractFlow
    standardised: ClassVar[bool] = False

    def to_noise(self, x: Array, tau: Array, x0: Array) -> tuple[Array, Array]:
        z, log_det = self.flow.to_source(x, x0)
        noise, log_det_source = self.source.to_noise(z, tau, x0)
        return noise, log_det + log_det_source

    def from_noise(self, noise: Array, tau: Array, x0: Array) -> Float[Array, " d"]:
        return self.flow.from_source(self.source.from_noise(noise, tau, x0), x0)

    def stages(self, noise: Array, tau: Array, x0: Array) -> Float[Array, "layers+1 d"]:
        return self.flow.stages(self.source.from_noise(noise, tau, x0), x0)

    def place(self, noise: Array, clock: Array, x0: Array) -> Float[Array, " d"]:
        return self.from_noise(noise, clock**2, x0)

    def coordinates(self, x: Array, clock: Array, x0: Array) -> Float[Array, " d"]:
        return x

    def log_density(self, y: Array, clock: Array, x0: Array) -> Float[Array, ""]:
        return self.log_prob(y, clock**2, x0)

    def log_ratio_and_forcing(self, y: Array, clock: Array, x0: Array) -> tuple[Array, Array]:
        initial, tau = self.source.initial_condition(x0), clock**2
        rate = log_density_rate(
            initial.sde, lambda x: self.log_prob(x, tau, x0), initial.start_time + tau, y
        )
        value, moved = jax.value_and_grad(self.log_prob, argnums=1)(y, tau, x0)
        return value - self.source.log_prob(y, tau, x0), 2 * clock * (rate - moved)


class StandardisedAnsatz(AbstractAnsatz):
    r"""The flow acts on $\zeta = L^{-1}(x - m)$, where $m, L$ is the frame of the source.

    Inputs of the flow are of order one at all times, and the exact map tends to the identity as
    $\tau\to0$ even if the noise depends on the state. The context of the flow is the standardised
    conditioning vector. If `follows`, it also contains the mean $m$, so that the map changes with
    time even if the parameters are constant. If the source is skewed, third cumulants come last,
    for the outermost layer of the flow (`SkewedFlow`).

    **Arguments:**

    - `source`: the source.
    - `flow`: the flow.
    - `centre`, `whitening`: the affine map that standardises conditioning vectors.
    - `follows`: `True` if the context contains the mean of the source.
    """

    source: AbstractGaussianSource
    flow: AbstractFlow
    centre: Float[np.ndarray, " d+k"]
    whitening: Float[np.ndarray, "d+k d+k"]
    follows: bool = eqx.field(static=True, default=False)
    standardised: ClassVar[bool] = True

    def to_noise(self, x: Array, tau: Array, x0: Array) -> tuple[Array, Array]:
        frame = self.source.frame(tau, x0)
        z, log_det = self.flow.to_source(frame.standardise(x), self._context(x0, frame))
        return z, log_det - frame.log_det()

    def from_noise(self, noise: Array, tau: Array, x0: Array) -> Float[Array, " d"]:
        frame = self.source.frame(tau, x0)
        return frame.restore(self.flow.from_source(noise, self._context(x0, frame)))

    def stages(self, noise: Array, tau: Array, x0: Array) -> Float[Array, "layers+1 d"]:
        frame = self.source.frame(tau, x0)
        return jax.vmap(frame.restore)(self.flow.stages(noise, self._context(x0, frame)))

    def place(self, noise: Array, clock: Array, x0: Array) -> Float[Array, " d"]:
        return self.flow.from_source(noise, self._context_at(clock, x0))

    def coordinates(self, x: Array, clock: Array, x0: Array) -> Float[Array, " d"]:
        return self.source.frame(clock**2, x0).standardise(x)

    def log_density(self, y: Array, clock: Array, x0: Array) -> Float[Array, ""]:
        return self._log_ratio(y, self._context_at(clock, x0))

    def log_ratio_and_forcing(self, y: Array, clock: Array, x0: Array) -> tuple[Array, Array]:
        moving = self._moving(y, clock, x0)
        value, rate = moving.equation.rate(lambda z: self._log_ratio(z, moving.context))
        return value, rate - self._context_rate(y, moving)

    def log_ratio_and_rate(self, y: Array, clock: Array, x0: Array) -> tuple[Array, Array]:
        """Return the log-ratio of the density to the source, and its total rate.

        The total rate is the forcing plus the rate due to the change of the context.
        """
        moving = self._moving(y, clock, x0)
        return moving.equation.rate(lambda z: self._log_ratio(z, moving.context))

    def linearised(self, y: Array, clock: Array, x0: Array) -> tuple[Array, Array, Array]:
        """Return `forcing`, `parameter_score`, and the parameter gradient of the total rate."""
        theta, moving = self.theta, self._moving(y, clock, x0)

        def log_density(z: Array) -> tuple[Array, Array]:
            return jax.value_and_grad(lambda t: self.at(t)._log_ratio(z, moving.context))(theta)

        rate, score, rate_gradient = moving.equation.linearised(log_density)
        return rate - self._context_rate(y, moving), score, rate_gradient

    def reverse(self, y: Array, clock: Array, x0: Array) -> tuple[Array, Array]:
        """Return noise and drift of the process that runs back in time under this density.

        They are per unit of clock, in the coordinates of the ansatz.
        """
        moving = self._moving(y, clock, x0)
        columns, forward = moving.equation.directions[:, :-1], moving.equation.directions[:, -1]
        slope = jax.grad(lambda z: self._log_ratio(z, moving.context))(y)
        return columns, forward + columns @ (columns.T @ slope)

    def source_forcing(self, y: Array, clock: Array, x0: Array) -> Float[Array, ""]:
        """Return `forcing` for an identity flow."""
        return self._moving(y, clock, x0).equation.source

    def _log_ratio(self, y: Array, context: Array) -> Float[Array, ""]:
        z, log_det = self.flow.to_source(y, context)
        # The ratio to N(0, I). A difference of squares would lose small values to rounding.
        return log_det - 0.5 * (z - y) @ (z + y)

    def _moving(self, y: Array, clock: Array, x0: Array) -> "_Moving":
        source, initial = self.source, self.source.initial_condition(x0)

        def at(c: Array) -> tuple[Frame, Array]:
            frame = source.frame(c**2, x0)
            return frame, self._context(x0, frame)

        (frame, context), (rate, context_dot) = jax.jvp(at, (clock,), (jnp.ones_like(clock),))
        t = initial.start_time + clock**2
        equation = ratio_equation(initial.sde, t, clock, frame, rate, y)
        return _Moving(equation, context, context_dot)

    @property
    def _context_moves(self) -> bool:
        return self.follows or self.source.skewed

    def _context_rate(self, y: Array, moving: "_Moving") -> Array | float:
        """Return the rate of the log-ratio due to the change of the context, per unit of clock."""
        if not self._context_moves:
            return 0.0
        log_ratio = lambda context: self._log_ratio(y, context)
        return jax.jvp(log_ratio, (moving.context,), (moving.context_dot,))[1]

    def _context_at(self, clock: Array, x0: Array) -> Float[Array, " c"]:
        return self._context(x0, self.source.frame(clock**2, x0) if self._context_moves else None)

    def _context(self, x0: Float[Array, " d+k"], frame: Frame | None) -> Float[Array, " c"]:
        """Return the standardised conditioning vector, the mean if `follows`, and the shape."""
        centre = jnp.asarray(self.centre, x0.dtype)
        whitening = jnp.asarray(self.whitening, x0.dtype)
        # Frames may follow the conditioning vector, see `source.tabulated`.
        start = whitening @ (x0[: len(centre)] - centre)
        if not self._context_moves or frame is None:
            return start
        parts, dim = [start], len(frame.mean)
        if self.follows:
            # The first block of the whitening belongs to the state.
            parts.append(whitening[:dim, :dim] @ (frame.mean - centre[:dim]))
        if frame.shape is not None:
            parts.append(frame.shape)
        return jnp.concatenate(parts)


class _Moving(NamedTuple):
    """The equation at a point, the context of the flow, and its derivative in the clock."""

    equation: RatioEquation
    context: Float[Array, " c"]
    context_dot: Float[Array, " c"]
