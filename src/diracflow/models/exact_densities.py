r"""Transition densities in closed form.

Parameters of the SDE and the start time, if a density depends on them, follow the start in the
conditioning vector. Gradients in all of them are exact.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import log_ndtr
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from ..sde.delegation import delegated
from ..sde.domains import Positive
from ..sde.linear_step import linear_step
from ..sde.parameters import Bounds, check_names
from ..transition.transition_density import AbstractTransitionDensity

# Halvings of the time step of a linear SDE, sufficient for a rate times time of a million.
_DOUBLINGS = 20
# A constant, because every query reads the domain.
HALF_LINE = (Positive(),)
# The noise is a scale.
_NOISE: Bounds = {"noise": (0.0, np.inf)}


class AbstractExactDensity(AbstractTransitionDensity):
    """A density in closed form, for all times."""

    dim: int = eqx.field(static=True)
    noise_dim: int = eqx.field(static=True)
    horizon: float = eqx.field(static=True, default=np.inf, kw_only=True)

    def _at_time(self, t: Float[Array, ""]) -> Any:
        return t


class ExactLinear(AbstractExactDensity):
    r"""Gaussian transition density of $dX = -A(X - m)\,dt + \sigma\,dW$.

    The mean is $m + e^{-At}(x_0 - m)$ and the covariance
    $\int_0^t e^{-Au}\sigma\sigma^\top e^{-A^\top u}du$.
    """

    rate: np.ndarray
    level: np.ndarray
    noise: np.ndarray

    def __init__(self, rate: np.ndarray, level: np.ndarray, noise: np.ndarray):
        self.rate, self.level, self.noise = rate, level, noise
        self.dim = self.noise_dim = len(level)

    def _at_time(self, t: Float[Array, ""]) -> tuple[Array, Array]:
        power = jnp.asarray(self.noise @ self.noise.T, t.dtype)
        step = linear_step(-jnp.asarray(self.rate, t.dtype), power, t, _DOUBLINGS)
        return step.change, jnp.linalg.cholesky(step.noise)

    def _log_prob(self, state: tuple[Array, Array], x: Array, x0: Array) -> Float[Array, ""]:
        factor = state[1]
        noise = solve_triangular(factor, x - self._mean(state, x0), lower=True)
        log_det = jnp.sum(jnp.log(jnp.diag(factor))) + 0.5 * self.dim * jnp.log(2 * jnp.pi)
        return -0.5 * noise @ noise - log_det

    def _from_noise(
        self, state: tuple[Array, Array], noise: Array, x0: Array
    ) -> Float[Array, " d"]:
        return self._mean(state, x0) + state[1] @ noise

    def _mean(self, state: tuple[Array, Array], x0: Float[Array, " d"]) -> Float[Array, " d"]:
        return x0 + state[0] @ (x0 - jnp.asarray(self.level, x0.dtype))


class ExactBenes(AbstractExactDensity):
    r"""Transition density of $dX = R\tanh(R^\top X)\,dt + R\,dW$, $R$ orthogonal.

    The components of $y = R^\top x$ are independent mixtures of $\mathcal{N}(y_0 \pm t, t)$ with
    weights $e^{\pm y_0} / (2\cosh y_0)$.
    """

    rotation: np.ndarray
    pathwise = False

    def __init__(self, rotation: np.ndarray):
        self.rotation = rotation
        self.dim = len(rotation)
        self.noise_dim = 2 * self.dim  # a sign and a displacement for each axis

    def _log_prob(self, state: Array, x: Array, x0: Array) -> Float[Array, ""]:
        t, inverse = state, jnp.asarray(self.rotation.T, x.dtype)
        y, y0 = inverse @ x, inverse @ x0
        growth = _log_cosh(y) - _log_cosh(y0)
        return jnp.sum(growth - (y - y0) ** 2 / (2 * t) - 0.5 * (t + jnp.log(2 * jnp.pi * t)))

    def _from_noise(self, state: Array, noise: Array, x0: Array) -> Float[Array, " d"]:
        t, y0 = state, self.rotation.T @ x0
        choice, displacement = jnp.split(noise, 2)
        upwards = log_ndtr(choice) < jax.nn.log_sigmoid(2 * y0)
        return self.rotation @ (y0 + jnp.where(upwards, t, -t) + jnp.sqrt(t) * displacement)


class ExactSheared(AbstractExactDensity):
    r"""Transition density of $X = Y + a\,Y_1^2 e_2$ with $Y$ the Brownian motion $y_0 + B W$."""

    mixing: np.ndarray
    inverse: np.ndarray
    log_det: float = eqx.field(static=True)
    shear: float = eqx.field(static=True)

    def __init__(self, mixing: np.ndarray, shear: float):
        self.mixing, self.shear = mixing, shear
        self.inverse = np.linalg.inv(mixing)
        self.log_det = float(np.linalg.slogdet(mixing)[1])
        self.dim = self.noise_dim = len(mixing)

    def _log_prob(self, state: Array, x: Array, x0: Array) -> Float[Array, ""]:
        t = state
        # The shear preserves volume, so its log-determinant is zero.
        noise = self.inverse @ (self._unshear(x) - self._unshear(x0))
        log_det = self.log_det + 0.5 * self.dim * jnp.log(2 * jnp.pi * t)
        return -0.5 * noise @ noise / t - log_det

    def _from_noise(self, state: Array, noise: Array, x0: Array) -> Float[Array, " d"]:
        y = self._unshear(x0) + jnp.sqrt(state) * self.mixing @ noise
        return y.at[1].add(self.shear * y[0] ** 2)

    def _unshear(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return x.at[1].add(-self.shear * x[0] ** 2)


def _log_cosh(y: Array) -> Array:
    return jnp.logaddexp(y, -y) - jnp.log(2.0)


class AbstractNormalDensity(AbstractExactDensity):
    """The density of one component whose image on the real line is normal."""

    @abc.abstractmethod
    def _law(self, t: Array, start: Float[Array, " 1+k"]) -> tuple[Array, Array]:
        """Return mean and standard deviation of the image."""

    def _log_prob(self, state: Array, x: Array, x0: Array) -> Float[Array, ""]:
        [part], (mean, deviation) = self.domain, self._law(state, x0)
        inside = part.contains(x[0])
        known = jnp.where(inside, x[0], part.centre)
        value = norm.logpdf(part.to_real(known), mean, deviation) + part.log_slope(known)
        return jnp.where(inside, value, -jnp.inf)

    def _from_noise(self, state: Array, noise: Array, x0: Array) -> Float[Array, " 1"]:
        mean, deviation = self._law(state, x0)
        return self.domain[0].from_real(mean + deviation * noise)


class ExactOrnsteinUhlenbeck(AbstractNormalDensity):
    r"""Transition density of $dX = \kappa(m - X)\,dt + \sigma\,dW$, with parameters in the query.

    The parameters are `rate` $\kappa$ (any number; zero for a Brownian motion), `level` $m$ and
    `noise` $\sigma > 0$.

    >>> import diracflow as df
    >>> density = df.ExactOrnsteinUhlenbeck()
    >>> density.params
    ('rate', 'level', 'noise')
    """

    param_bounds = _NOISE

    def __init__(self) -> None:
        self.params = ("rate", "level", "noise")
        self.dim = self.noise_dim = 1

    def _law(self, t: Array, start: Float[Array, " 4"]) -> tuple[Array, Array]:
        x0, rate, level, noise = start
        mean = x0 + rate * t * mean_decay(rate * t) * (level - x0)
        return mean, noise * jnp.sqrt(t * mean_decay(2 * rate * t))


class ExactSeasonal(AbstractNormalDensity):
    r"""Transition density of $dX = \kappa(m + a\sin(2\pi t) - X)\,dt + \sigma\,dW$.

    Queries take the start time as `start_time`. The mean follows the seasonal level with a lag, and
    with an amplitude smaller by the factor $\kappa/\sqrt{\kappa^2 + 4\pi^2}$.

    **Arguments:**

    - `rate`, `level`, `amplitude`, `noise`: $\kappa$, $m$, $a$, $\sigma$.

    >>> import diracflow as df
    >>> density = df.models.seasonal().exact
    >>> density.log_prob([0.0], 0.5, [0.0], start_time=[0.0, 0.25]).shape
    (2,)
    """

    rate: float = eqx.field(static=True)
    level: float = eqx.field(static=True)
    amplitude: float = eqx.field(static=True)
    noise: float = eqx.field(static=True)
    start_time = None

    def __init__(self, rate: float, level: float, amplitude: float, noise: float):
        self.rate, self.level, self.amplitude, self.noise = rate, level, amplitude, noise
        self.dim = self.noise_dim = 1

    def _law(self, t: Array, start: Float[Array, " 2"]) -> tuple[Array, Array]:
        x0, s = start
        above = x0 - self._response(s)
        mean = self._response(s + t) + above * jnp.exp(-self.rate * t)
        return mean, self.noise * jnp.sqrt(t * mean_decay(2 * self.rate * t))

    def _response(self, t: Float[Array, ""]) -> Float[Array, ""]:
        """Return the periodic solution without noise, which all means approach."""
        turn = 2 * np.pi
        wave = self.rate * jnp.sin(turn * t) - turn * jnp.cos(turn * t)
        return self.level + self.amplitude * self.rate / (self.rate**2 + turn**2) * wave


class ExactGeometricBrownian(AbstractNormalDensity):
    r"""Transition density of $dX = \mu X\,dt + \sigma X\,dW$ on the positive half line.

    The parameters are `rate` $\mu$ (any number) and `noise` $\sigma > 0$. Starts must be positive.
    """

    domain = HALF_LINE
    param_bounds = _NOISE

    def __init__(self) -> None:
        self.params = ("rate", "noise")
        self.dim = self.noise_dim = 1

    def _law(self, t: Array, start: Float[Array, " 3"]) -> tuple[Array, Array]:
        x0, rate, noise = start
        return jnp.log(x0) + (rate - noise**2 / 2) * t, noise * jnp.sqrt(t)


class Fixed(AbstractExactDensity):
    """A density with parameters, at fixed values of all of them."""

    density: AbstractTransitionDensity
    values: tuple[float, ...] = eqx.field(static=True)

    def __init__(self, density: AbstractTransitionDensity, **params: float):
        check_names(density.params, params)
        self.density, self.params = density, ()
        self.values = tuple(float(params[name]) for name in density.params)
        self.dim, self.noise_dim = density.dim, density.noise_dim

    pathwise = delegated("density.pathwise")
    domain = delegated("density.domain")
    _at_time = delegated("density._at_time")

    def _log_prob(self, state: Any, x: Array, x0: Array) -> Float[Array, ""]:
        return self.density._log_prob(state, x, self._conditioning(x0))

    def _from_noise(self, state: Any, noise: Array, x0: Array) -> Float[Array, " d"]:
        return self.density._from_noise(state, noise, self._conditioning(x0))

    def _require_samples(self, start: Float[Array, "*batch d"]) -> None:
        if not isinstance(start, jax.core.Tracer):
            values = np.broadcast_to(self.values, (*start.shape[:-1], len(self.values)))
            self.density._require_samples(jnp.concatenate([start, values], axis=-1))

    def _conditioning(self, x0: Float[Array, " d"]) -> Float[Array, " d+k"]:
        return jnp.concatenate([x0, jnp.asarray(self.values, x0.dtype)])


def mean_decay(z: Float[Array, ""]) -> Float[Array, ""]:
    r"""Return the mean $(1 - e^{-z}) / z$ of $e^{-u}$ over $(0, z)$, smooth at zero."""
    # Below the threshold the error of the series, z**4 / 120, is below rounding. Above it, the
    # second derivative of the quotient still has half of its digits.
    small = jnp.abs(z) < jnp.finfo(z.dtype).eps ** 0.2
    quotient = -jnp.expm1(-z) / jnp.where(small, 1.0, z)
    return jnp.where(small, 1 - z / 2 * (1 - z / 3 * (1 - z / 4 * (1 - z / 5))), quotient)
