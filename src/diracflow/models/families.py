r"""Exact transition densities that depend on parameters of the SDE or on the start time.

All are one-dimensional. Parameters and start time follow the start in the conditioning vector, and
gradients in all of them are exact.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from ..sde.domains import AbstractDomain, Positive
from ..sde.parameters import Bounds, check_names
from ..transition.transition_density import AbstractTransitionDensity

# A constant, because every query reads the domain.
HALF_LINE = (Positive(),)


class ExactOrnsteinUhlenbeck(AbstractTransitionDensity):
    r"""Transition density of $dX = \kappa(m - X)\,dt + \sigma\,dW$, with parameters in the query.

    The parameters are `rate` $\kappa$ (any number; zero for a Brownian motion), `level` $m$ and
    `noise` $\sigma > 0$.

    >>> import diracflow as df
    >>> density = df.ExactOrnsteinUhlenbeck()
    >>> density.params
    ('rate', 'level', 'noise')
    """

    dim: int = eqx.field(static=True)
    noise_dim: int = eqx.field(static=True)
    horizon: float = eqx.field(static=True)

    def __init__(self) -> None:
        self.params = ("rate", "level", "noise")
        self.dim = self.noise_dim = 1
        self.horizon = np.inf

    @property
    def param_bounds(self) -> Bounds:
        return {"noise": (0.0, np.inf)}

    def _at_time(self, t: Float[Array, ""]) -> Float[Array, ""]:
        return t

    def _log_prob(
        self, state: Float[Array, ""], x: Float[Array, " 1"], x0: Float[Array, " 4"]
    ) -> Float[Array, ""]:
        mean, deviation = _linear_law(state, x0)
        return norm.logpdf(x[0], mean, deviation)

    def _from_noise(
        self, state: Float[Array, ""], noise: Float[Array, " 1"], x0: Float[Array, " 4"]
    ) -> Float[Array, " 1"]:
        mean, deviation = _linear_law(state, x0)
        return mean + deviation * noise


class ExactSeasonal(AbstractTransitionDensity):
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
    dim: int = eqx.field(static=True)
    noise_dim: int = eqx.field(static=True)
    horizon: float = eqx.field(static=True)

    def __init__(self, rate: float, level: float, amplitude: float, noise: float):
        self.rate, self.level, self.amplitude, self.noise = rate, level, amplitude, noise
        self.dim = self.noise_dim = 1
        self.horizon = np.inf

    @property
    def start_time(self) -> None:
        return None

    def _at_time(self, t: Float[Array, ""]) -> Float[Array, ""]:
        return t

    def _log_prob(
        self, state: Float[Array, ""], x: Float[Array, " 1"], x0: Float[Array, " 2"]
    ) -> Float[Array, ""]:
        mean, deviation = self._law(state, x0)
        return norm.logpdf(x[0], mean, deviation)

    def _from_noise(
        self, state: Float[Array, ""], noise: Float[Array, " 1"], x0: Float[Array, " 2"]
    ) -> Float[Array, " 1"]:
        mean, deviation = self._law(state, x0)
        return mean + deviation * noise

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


class ExactGeometricBrownian(AbstractTransitionDensity):
    r"""Transition density of $dX = \mu X\,dt + \sigma X\,dW$ on the positive half line.

    The parameters are `rate` $\mu$ (any number) and `noise` $\sigma > 0$. Starts must be positive.
    """

    dim: int = eqx.field(static=True)
    noise_dim: int = eqx.field(static=True)
    horizon: float = eqx.field(static=True)

    def __init__(self) -> None:
        self.params = ("rate", "noise")
        self.dim = self.noise_dim = 1
        self.horizon = np.inf

    @property
    def domain(self) -> tuple[AbstractDomain, ...]:
        return HALF_LINE

    @property
    def param_bounds(self) -> Bounds:
        return {"noise": (0.0, np.inf)}

    def _at_time(self, t: Float[Array, ""]) -> Float[Array, ""]:
        return t

    def _log_prob(
        self, state: Float[Array, ""], x: Float[Array, " 1"], x0: Float[Array, " 3"]
    ) -> Float[Array, ""]:
        mean, deviation = _log_law(state, x0)
        positive = x[0] > 0
        log_x = jnp.log(jnp.where(positive, x[0], 1.0))
        return jnp.where(positive, norm.logpdf(log_x, mean, deviation) - log_x, -jnp.inf)

    def _from_noise(
        self, state: Float[Array, ""], noise: Float[Array, " 1"], x0: Float[Array, " 3"]
    ) -> Float[Array, " 1"]:
        mean, deviation = _log_law(state, x0)
        return jnp.exp(mean + deviation * noise)


class Fixed(AbstractTransitionDensity):
    """A density with parameters, at fixed values of all of them."""

    density: AbstractTransitionDensity
    values: tuple[float, ...] = eqx.field(static=True)
    dim: int = eqx.field(static=True)
    noise_dim: int = eqx.field(static=True)
    horizon: float = eqx.field(static=True)

    def __init__(self, density: AbstractTransitionDensity, **params: float):
        check_names(density.params, params)
        self.density, self.params = density, ()
        self.values = tuple(float(params[name]) for name in density.params)
        self.dim, self.noise_dim = density.dim, density.noise_dim
        self.horizon = density.horizon

    @property
    def domain(self) -> tuple[AbstractDomain, ...]:
        return self.density.domain

    def _at_time(self, t: Float[Array, ""]) -> Any:
        return self.density._at_time(t)

    def _log_prob(
        self, state: Any, x: Float[Array, " d"], x0: Float[Array, " d"]
    ) -> Float[Array, ""]:
        return self.density._log_prob(state, x, self._conditioning(x0))

    def _from_noise(
        self, state: Any, noise: Float[Array, " m"], x0: Float[Array, " d"]
    ) -> Float[Array, " d"]:
        return self.density._from_noise(state, noise, self._conditioning(x0))

    def _require_samples(self, start: Float[Array, "*batch d"]) -> None:
        if not isinstance(start, jax.core.Tracer):
            values = np.broadcast_to(self.values, (*start.shape[:-1], len(self.values)))
            self.density._require_samples(jnp.concatenate([start, values], axis=-1))

    def _conditioning(self, x0: Float[Array, " d"]) -> Float[Array, " d+k"]:
        return jnp.concatenate([x0, jnp.asarray(self.values, x0.dtype)])


def _log_law(t: Array, start: Float[Array, " 3"]) -> tuple[Array, Array]:
    """Return mean and standard deviation of the logarithm of a geometric Brownian motion."""
    x0, rate, noise = start
    return jnp.log(x0) + (rate - noise**2 / 2) * t, noise * jnp.sqrt(t)


def _linear_law(t: Array, start: Float[Array, " 4"]) -> tuple[Array, Array]:
    x0, rate, level, noise = start
    mean = x0 + rate * t * mean_decay(rate * t) * (level - x0)
    return mean, noise * jnp.sqrt(t * mean_decay(2 * rate * t))


def mean_decay(z: Float[Array, ""]) -> Float[Array, ""]:
    r"""Return the mean $(1 - e^{-z}) / z$ of $e^{-u}$ over $(0, z)$, smooth at zero."""
    # Below the threshold the error of the series, z**4 / 120, is below rounding. Above it, the
    # second derivative of the quotient still has half of its digits.
    small = jnp.abs(z) < jnp.finfo(z.dtype).eps ** 0.2
    quotient = -jnp.expm1(-z) / jnp.where(small, 1.0, z)
    return jnp.where(small, 1 - z / 2 * (1 - z / 3 * (1 - z / 4 * (1 - z / 5))), quotient)
