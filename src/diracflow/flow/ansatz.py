r"""The densities that are trained: a source carried through a flow.

$$P(x | \theta, \tau, x_0) = p_Z(n_\theta(x | x_0) | \tau, x_0)\,|\det\nabla n_\theta|.$$

Positivity and unit mass hold for every $\theta$; with $n_\theta$ the identity at $\tau = 0$ so does
the Dirac start.

Here $x_0$ stands for all that is given when the process begins: the start, and behind it parameters
of the SDE and the time of the start where these vary.

An ansatz works in coordinates of its own. The paper's flow acts on the state; the other acts on the
state seen in the source's frame, where the target is a standard normal law at all times.
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
from ..source.gaussian import AbstractGaussianSource, standard_log_prob
from .coupling_flow import AbstractFlow


class AbstractAnsatz(eqx.Module):
    """Source and flow; the parameters are the flow's floating-point arrays."""

    source: eqx.AbstractVar[AbstractGaussianSource]
    flow: eqx.AbstractVar[AbstractFlow]
    # Whether points of the density stay put in the ansatz's own coordinates as time goes on.
    standardised: ClassVar[bool]

    @property
    def theta(self) -> Float[Array, " m"]:
        """The parameters of the flow as one vector."""
        return ravel_pytree(eqx.filter(self.flow, eqx.is_inexact_array))[0]

    def at(self, theta: Float[Array, " m"]) -> Self:
        """The same ansatz with other parameters."""
        parameters, rest = eqx.partition(self.flow, eqx.is_inexact_array)
        _, unravel = ravel_pytree(parameters)
        return eqx.tree_at(lambda a: a.flow, self, eqx.combine(unravel(theta), rest))

    @abc.abstractmethod
    def log_prob(
        self, x: Float[Array, " d"], tau: Float[Array, ""], x0: Float[Array, " d+k"]
    ) -> Float[Array, ""]:
        """Log-density at the state `x`."""

    @abc.abstractmethod
    def from_noise(
        self, noise: Float[Array, " d"], tau: Float[Array, ""], x0: Float[Array, " d+k"]
    ) -> Float[Array, " d"]:
        """The state to which standard normal `noise` is carried."""

    @abc.abstractmethod
    def stages(
        self, noise: Float[Array, " d"], tau: Float[Array, ""], x0: Float[Array, " d+k"]
    ) -> Float[Array, "layers+1 d"]:
        """The way of `noise` to its state, from the source and after each layer."""

    @abc.abstractmethod
    def place(
        self, noise: Float[Array, " d"], clock: Float[Array, ""], x0: Float[Array, " d+k"]
    ) -> Float[Array, " d"]:
        """The point to which `noise` is carried, in the ansatz's own coordinates."""

    @abc.abstractmethod
    def coordinates(
        self, x: Float[Array, " d"], clock: Float[Array, ""], x0: Float[Array, " d+k"]
    ) -> Float[Array, " d"]:
        """The state `x` in the ansatz's own coordinates."""

    @abc.abstractmethod
    def log_density(
        self, y: Float[Array, " d"], clock: Float[Array, ""], x0: Float[Array, " d+k"]
    ) -> Float[Array, ""]:
        """Log-density at a point in own coordinates, up to what does not depend on parameters."""

    def parameter_score(
        self, y: Float[Array, " d"], clock: Float[Array, ""], x0: Float[Array, " d+k"]
    ) -> Float[Array, " m"]:
        """Derivative of `log_density` in the parameters."""
        return jax.grad(lambda theta: self.at(theta).log_density(y, clock, x0))(self.theta)

    def forcing(
        self, y: Float[Array, " d"], clock: Float[Array, ""], x0: Float[Array, " d+k"]
    ) -> Float[Array, ""]:
        r"""The part of the Fokker--Planck rate left to the parameters, per unit of clock.

        $f = \mathcal{A}[q] - \partial_c q|_\theta$. (The paper prints a plus before the second
        term; its own residual requires the minus. For a Brownian motion the source is exact and
        $f$ must vanish.)
        """
        return self.log_ratio_and_forcing(y, clock, x0)[1]

    @abc.abstractmethod
    def log_ratio_and_forcing(
        self, y: Float[Array, " d"], clock: Float[Array, ""], x0: Float[Array, " d+k"]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Log of the density's ratio to the source's, and `forcing`."""


class RawAnsatz(AbstractAnsatz):
    """The paper's: the flow acts on the state itself."""

    source: AbstractGaussianSource
    flow: AbstractFlow
    standardised: ClassVar[bool] = False

    def log_prob(self, x: Array, tau: Array, x0: Array) -> Float[Array, ""]:
        z, log_det = self.flow.to_source(x, x0)
        return self.source.log_prob(z, tau, x0) + log_det

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
        given, tau = self.source.given(x0), clock**2
        rate = log_density_rate(
            given.sde, lambda x: self.log_prob(x, tau, x0), given.start_time + tau, y
        )
        value, moved = jax.value_and_grad(self.log_prob, argnums=1)(y, tau, x0)
        return value - self.source.log_prob(y, tau, x0), 2 * clock * (rate - moved)


class StandardisedAnsatz(AbstractAnsatz):
    r"""The flow acts on $\zeta = L^{-1}(x - m)$, with $m, L$ the source's frame.

    Inputs of the flow stay of order one at all times, and the exact map tends to the identity as
    $\tau\to0$ even where noise depends on the state. The start enters standardised, too, and where
    the flow `follows` paths, so does the mean $m$: then the map moves with time even where
    parameters rest.
    """

    source: AbstractGaussianSource
    flow: AbstractFlow
    centre: Float[np.ndarray, " d+k"]
    whitening: Float[np.ndarray, "d+k d+k"]
    follows: bool = eqx.field(static=True, default=False)
    standardised: ClassVar[bool] = True

    def log_prob(self, x: Array, tau: Array, x0: Array) -> Float[Array, ""]:
        frame = self.source.frame(tau, x0)
        z, log_det = self.flow.to_source(frame.standardise(x), self._context(x0, frame))
        return standard_log_prob(z) + log_det - frame.log_det()

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
        return value, rate - self._carried(y, moving)

    def log_ratio_and_rate(
        self, y: Array, clock: Array, x0: Array
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Log of the ratio to the source, and its whole rate at a point of own coordinates.

        The rate is the forcing and what the flow supplies by following the path.
        """
        moving = self._moving(y, clock, x0)
        return moving.equation.rate(lambda z: self._log_ratio(z, moving.context))

    def linearised(
        self, y: Array, clock: Array, x0: Array
    ) -> tuple[Float[Array, ""], Float[Array, " m"], Float[Array, " m"]]:
        """`forcing`, `parameter_score`, and the derivative of the whole rate in the parameters."""
        theta, moving = self.theta, self._moving(y, clock, x0)

        def log_density(z: Array) -> tuple[Array, Array]:
            return jax.value_and_grad(lambda t: self.at(t)._log_ratio(z, moving.context))(theta)

        rate, score, slopes = moving.equation.linearised(log_density)
        return rate - self._carried(y, moving), score, slopes

    def source_forcing(self, y: Array, clock: Array, x0: Array) -> Float[Array, ""]:
        """`forcing` of the source alone, without a flow or with one that is the identity."""
        return self._moving(y, clock, x0).equation.source

    def _log_ratio(self, y: Array, context: Array) -> Float[Array, ""]:
        z, log_det = self.flow.to_source(y, context)
        # The ratio to N(0, I). Not a difference of squares, which would lose its small values.
        return log_det - 0.5 * (z - y) @ (z + y)

    def _moving(self, y: Array, clock: Array, x0: Array) -> "_Moving":
        source, given = self.source, self.source.given(x0)

        def at(c: Array) -> tuple[Frame, Array]:
            frame = source.frame(c**2, x0)
            return frame, self._context(x0, frame)

        (frame, context), (rate, drifts) = jax.jvp(at, (clock,), (jnp.ones_like(clock),))
        t = given.start_time + clock**2
        equation = ratio_equation(given.sde, t, clock, frame, rate, y)
        return _Moving(equation, context, drifts)

    def _carried(self, y: Array, moving: "_Moving") -> Array | float:
        """What the moving context alone does to the log-ratio, per unit of clock."""
        if not self.follows:
            return 0.0
        log_ratio = lambda context: self._log_ratio(y, context)
        return jax.jvp(log_ratio, (moving.context,), (moving.drifts,))[1]

    def _context_at(self, clock: Array, x0: Array) -> Float[Array, " c"]:
        return self._context(x0, self.source.frame(clock**2, x0) if self.follows else None)

    def _context(self, x0: Float[Array, " d+k"], frame: Frame | None) -> Float[Array, " c"]:
        """The start, standardised, and where the flow follows paths the mean in the same units."""
        centre = jnp.asarray(self.centre, x0.dtype)
        whitening = jnp.asarray(self.whitening, x0.dtype)
        start = whitening @ (x0 - centre)
        if not self.follows or frame is None:
            return start
        dim = len(frame.mean)
        # The first block of the whitening is that of the state alone.
        return jnp.concatenate([start, whitening[:dim, :dim] @ (frame.mean - centre[:dim])])


class _Moving(NamedTuple):
    """The equation at a point, the flow's context, and how that moves per unit of clock."""

    equation: RatioEquation
    context: Float[Array, " c"]
    drifts: Float[Array, " c"]
