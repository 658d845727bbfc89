r"""Transition densities in closed form, for tests and benchmarks."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import log_ndtr
from jaxtyping import Array, Float

from ..sde.linear_step import linear_step
from ..transition.transition_density import AbstractTransitionDensity

# Halvings of the time step of a linear SDE, sufficient for a rate times time of a million.
_DOUBLINGS = 20


class ExactLinear(AbstractTransitionDensity):
    r"""Gaussian transition density of $dX = -A(X - m)\,dt + \sigma\,dW$.

    The mean is $m + e^{-At}(x_0 - m)$ and the covariance
    $\int_0^t e^{-Au}\sigma\sigma^\top e^{-A^\top u}du$.
    """

    rate: np.ndarray
    level: np.ndarray
    noise: np.ndarray
    dim: int = eqx.field(static=True)
    noise_dim: int = eqx.field(static=True)
    horizon: float = eqx.field(static=True)

    def __init__(self, rate: np.ndarray, level: np.ndarray, noise: np.ndarray):
        self.rate, self.level, self.noise = rate, level, noise
        self.dim = self.noise_dim = len(level)
        self.horizon = np.inf

    def _at_time(self, t: Float[Array, ""]) -> tuple[Array, Array]:
        power = jnp.asarray(self.noise @ self.noise.T, t.dtype)
        step = linear_step(-jnp.asarray(self.rate, t.dtype), power, t, _DOUBLINGS)
        return step.change, jnp.linalg.cholesky(step.noise)

    def _log_prob(
        self, state: tuple[Array, Array], x: Float[Array, " d"], x0: Float[Array, " d"]
    ) -> Float[Array, ""]:
        factor = state[1]
        noise = solve_triangular(factor, x - self._mean(state, x0), lower=True)
        log_det = jnp.sum(jnp.log(jnp.diag(factor))) + 0.5 * self.dim * jnp.log(2 * jnp.pi)
        return -0.5 * noise @ noise - log_det

    def _from_noise(
        self, state: tuple[Array, Array], noise: Float[Array, " d"], x0: Float[Array, " d"]
    ) -> Float[Array, " d"]:
        return self._mean(state, x0) + state[1] @ noise

    def _mean(self, state: tuple[Array, Array], x0: Float[Array, " d"]) -> Float[Array, " d"]:
        return x0 + state[0] @ (x0 - jnp.asarray(self.level, x0.dtype))


class ExactBenes(AbstractTransitionDensity):
    r"""Transition density of $dX = R\tanh(R^\top X)\,dt + R\,dW$, $R$ orthogonal.

    The components of $y = R^\top x$ are independent mixtures of $\mathcal{N}(y_0 \pm t, t)$ with
    weights $e^{\pm y_0} / (2\cosh y_0)$.
    """

    rotation: np.ndarray
    dim: int = eqx.field(static=True)
    noise_dim: int = eqx.field(static=True)
    horizon: float = eqx.field(static=True)

    def __init__(self, rotation: np.ndarray):
        self.rotation = rotation
        self.dim = len(rotation)
        self.noise_dim = 2 * self.dim  # a sign and a displacement for each axis
        self.horizon = np.inf

    def _at_time(self, t: Float[Array, ""]) -> Float[Array, ""]:
        return t

    def _log_prob(
        self, state: Float[Array, ""], x: Float[Array, " d"], x0: Float[Array, " d"]
    ) -> Float[Array, ""]:
        t, inverse = state, jnp.asarray(self.rotation.T, x.dtype)
        y, y0 = inverse @ x, inverse @ x0
        growth = _log_cosh(y) - _log_cosh(y0)
        return jnp.sum(growth - (y - y0) ** 2 / (2 * t) - 0.5 * (t + jnp.log(2 * jnp.pi * t)))

    def _from_noise(
        self, state: Float[Array, ""], noise: Float[Array, " k"], x0: Float[Array, " d"]
    ) -> Float[Array, " d"]:
        t, y0 = state, self.rotation.T @ x0
        choice, displacement = jnp.split(noise, 2)
        upwards = log_ndtr(choice) < jax.nn.log_sigmoid(2 * y0)
        return self.rotation @ (y0 + jnp.where(upwards, t, -t) + jnp.sqrt(t) * displacement)


class ExactSheared(AbstractTransitionDensity):
    r"""Transition density of $X = Y + a\,Y_1^2 e_2$ with $Y$ the Brownian motion $y_0 + B W$."""

    mixing: np.ndarray
    inverse: np.ndarray
    log_det: float = eqx.field(static=True)
    shear: float = eqx.field(static=True)
    dim: int = eqx.field(static=True)
    noise_dim: int = eqx.field(static=True)
    horizon: float = eqx.field(static=True)

    def __init__(self, mixing: np.ndarray, shear: float):
        self.mixing, self.shear = mixing, shear
        self.inverse = np.linalg.inv(mixing)
        self.log_det = float(np.linalg.slogdet(mixing)[1])
        self.dim = self.noise_dim = len(mixing)
        self.horizon = np.inf

    def _at_time(self, t: Float[Array, ""]) -> Float[Array, ""]:
        return t

    def _log_prob(
        self, state: Float[Array, ""], x: Float[Array, " d"], x0: Float[Array, " d"]
    ) -> Float[Array, ""]:
        t = state
        # The shear preserves volume, so its log-determinant is zero.
        noise = self.inverse @ (self._unshear(x) - self._unshear(x0))
        log_det = self.log_det + 0.5 * self.dim * jnp.log(2 * jnp.pi * t)
        return -0.5 * noise @ noise / t - log_det

    def _from_noise(
        self, state: Float[Array, ""], noise: Float[Array, " d"], x0: Float[Array, " d"]
    ) -> Float[Array, " d"]:
        y = self._unshear(x0) + jnp.sqrt(state) * self.mixing @ noise
        return y.at[1].add(self.shear * y[0] ** 2)

    def _unshear(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return x.at[1].add(-self.shear * x[0] ** 2)


def _log_cosh(y: Array) -> Array:
    return jnp.logaddexp(y, -y) - jnp.log(2.0)
