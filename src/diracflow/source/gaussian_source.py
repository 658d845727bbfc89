r"""Sources: a Gaussian for every start and time, represented by its frame.

Arguments `x0` are conditioning vectors: the start, followed by the parameters of the SDE and the
start time if these vary (`sde.conditioning`).

The frame has two uses. The source is evaluated and sampled through it, and the flow acts in its
coordinates. To add a source, implement `frame`. `SourceDensity` is a source as a transition
density, the baseline before training.

The simplest source is one Euler--Maruyama step. From $X(s) = x_0$ a step of length $\tau$ gives
$\mathcal{N}(x_0 + b(s, x_0)\tau,\ \Sigma(s, x_0)\tau)$. It tends to the point mass at $x_0$ as
$\tau\to0$, so a flow that starts at the identity starts from the Dirac measure exactly.
"""

import abc

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..equation.moving_frame import Frame
from ..equation.skew_map import from_normal, to_normal
from ..equation.small_matrices import cholesky
from ..sde.chart import Chart, plain_chart
from ..sde.conditioning import InitialCondition, initial_condition
from ..sde.domains import AbstractDomain
from ..sde.sde import SDE
from ..transition.transition_density import AbstractTransitionDensity


class AbstractGaussianSource(eqx.Module):
    r"""A Gaussian law $N(m, LL^\top)$ that tends to the point mass at $x_0$ as $\tau\to0$.

    If it is `skewed`, the law has the third cumulants of the frame as well.
    """

    sde: eqx.AbstractVar[SDE]
    start_time: eqx.AbstractVar[float | None]  # `None` if it is part of `x0`

    @abc.abstractmethod
    def frame(self, tau: Float[Array, ""], x0: Float[Array, " d+k"]) -> Frame:
        """Return the mean and the Cholesky factor after a time `tau`.

        **Arguments:**

        - `tau`: the time since the start, positive.
        - `x0`: a conditioning vector.

        The result must be differentiable in both.
        """

    @property
    def integrates(self) -> bool:
        """`True` if frames take long to compute, so that programs should share them."""
        return False

    @property
    def skewed(self) -> bool:
        """`True` if frames have third cumulants."""
        return False

    def initial_condition(self, x0: Float[Array, " d+k"]) -> InitialCondition:
        """Return the SDE, start and start time that the conditioning vector `x0` encodes."""
        return initial_condition(self.sde, self.start_time, x0)

    def log_prob(
        self, z: Float[Array, " d"], tau: Float[Array, ""], x0: Float[Array, " d+k"]
    ) -> Float[Array, ""]:
        """Return the log-density at `z` after a time `tau`; differentiable in all arguments."""
        noise, log_det = self.to_noise(z, tau, x0)
        return standard_log_prob(noise) + log_det

    def to_noise(
        self, z: Float[Array, " d"], tau: Float[Array, ""], x0: Float[Array, " d+k"]
    ) -> tuple[Float[Array, " d"], Float[Array, ""]]:
        """Return the inverse of `from_noise`, and the logarithm of its determinant."""
        frame = self.frame(tau, x0)
        zeta, log_det = frame.standardise(z), -frame.log_det()
        if frame.shape is None:
            return zeta, log_det
        noise, log_det_bent = to_normal(zeta, frame.shape)
        return noise, log_det + log_det_bent

    def from_noise(
        self, noise: Float[Array, " d"], tau: Float[Array, ""], x0: Float[Array, " d+k"]
    ) -> Float[Array, " d"]:
        """Return the point to which the source maps standard normal `noise`."""
        frame = self.frame(tau, x0)
        return frame.restore(noise if frame.shape is None else from_normal(noise, frame.shape))


def standard_log_prob(zeta: Float[Array, " d"]) -> Float[Array, ""]:
    """Return the log-density of the standard normal law."""
    return -0.5 * zeta @ zeta - 0.5 * len(zeta) * jnp.log(2 * jnp.pi)


class EulerSource(AbstractGaussianSource):
    """The Gaussian law of one Euler--Maruyama step.

    **Arguments:**

    - `sde`: the SDE.
    - `start_time`: the start time, or `None` if it is part of the conditioning vector.
    """

    sde: SDE
    start_time: float | None = eqx.field(static=True, default=0.0)

    def frame(self, tau: Float[Array, ""], x0: Float[Array, " d+k"]) -> Frame:
        r"""Return the frame with mean $x_0 + b\tau$ and covariance $\Sigma\tau$."""
        sde, x, s = self.initial_condition(x0)
        factor = cholesky(sde.covariance(s, x))
        return Frame(x + sde.drift(s, x) * tau, jnp.sqrt(tau) * factor)


class SourceDensity(AbstractTransitionDensity):
    """A source with the interface of a transition density.

    **Arguments:**

    - `source`: the source.
    - `horizon`: the largest time of a query.
    - `chart`: maps states of the user to those of the source; by default the identity.
    """

    source: AbstractGaussianSource
    chart: Chart
    dim: int = eqx.field(static=True)
    noise_dim: int = eqx.field(static=True)
    horizon: float = eqx.field(static=True)

    def __init__(
        self, source: AbstractGaussianSource, horizon: float = np.inf, chart: Chart | None = None
    ):
        self.source, self.horizon = source, horizon
        self.chart = plain_chart(source.sde) if chart is None else chart
        self.dim = self.noise_dim = source.sde.dim
        self.params = source.sde.params

    @property
    def domain(self) -> tuple[AbstractDomain, ...]:
        return self.chart.maps

    @property
    def start_time(self) -> float | None:
        return self.source.start_time

    def _at_time(self, t: Float[Array, ""]) -> Float[Array, ""]:
        return t

    def _log_prob(self, state: Array, x: Array, x0: Array) -> Float[Array, ""]:
        y, log_slope = self.chart.end(x)
        return self.source.log_prob(y, state, self.chart.start(x0)) + log_slope

    def _from_noise(self, state: Array, noise: Array, x0: Array) -> Float[Array, " d"]:
        return self.chart.from_real(self.source.from_noise(noise, state, self.chart.start(x0)))
