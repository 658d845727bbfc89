r"""The exact transition density of the Cox--Ingersoll--Ross process, with parameters.

$dX = \kappa(m - X)\,dt + \sigma\sqrt X\,dW$ has $2cX(t) \sim \chi'^2_{\delta}(2u)$, a noncentral
chi-square law with $c = 2\kappa/(\sigma^2(1 - e^{-\kappa t}))$, $u = c\,x_0e^{-\kappa t}$ and
$\delta = 4\kappa m/\sigma^2$ degrees of freedom.

Its density contains the modified Bessel function $I_\nu$, which is computed in log space and is
differentiable in order and argument. For $\nu > -\tfrac12$ Poisson's integral with $s = \tanh y$ is
$I_\nu(z) = \frac{(z/2)^\nu}{\sqrt\pi\,\Gamma(\nu+\frac12)}
\int_{\mathbb R} e^{z\tanh y - (2\nu+1)\log\cosh y}\,dy$.
The integrand is positive with one peak, so a trapezoidal sum around the peak, in the variable
$\operatorname{arsinh}$ of the scaled distance, converges exponentially without cancellation. Lower
orders come from
$I_\nu = I_{\nu+2} + \tfrac{2(\nu+1)}{z}I_{\nu+1}$, whose terms are positive for $\nu > -1$.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammainc, gammaincc, gammaln, log_ndtr, logsumexp, ndtr
from jaxtyping import Array, Float

from ..distribution.root_finding import increasing_root
from .exact_densities import HALF_LINE, AbstractExactDensity, mean_decay

_NO_SAMPLES = "Samples of CIR require 4 * rate * level > noise**2; its density does not."


class ExactCIR(AbstractExactDensity):
    r"""Transition density of $dX = \kappa(m - X)\,dt + \sigma\sqrt X\,dW$ for positive states.

    The parameters are `rate` $\kappa$, `level` $m$ and `noise` $\sigma$, all positive. Starts must
    be positive. If $2\kappa m < \sigma^2$, the process is reflected at zero. Samples require
    $4\kappa m > \sigma^2$ and are not differentiable.
    """

    pathwise = False
    domain = HALF_LINE
    param_bounds = dict.fromkeys(("rate", "level", "noise"), (0.0, np.inf))

    def __init__(self) -> None:
        self.params = ("rate", "level", "noise")
        self.dim, self.noise_dim = 1, 2

    def _log_prob(self, state: Array, x: Array, x0: Array) -> Float[Array, ""]:
        scale, u, order = _chi_square(state, x0)
        positive = x[0] > 0
        v = scale * jnp.where(positive, x[0], 1.0)
        distance = jnp.sqrt(v) - jnp.sqrt(u)
        bessel = log_scaled_bessel(order, 2 * jnp.sqrt(u * v))
        log_density = jnp.log(scale) - distance**2 + order * jnp.log(v) + bessel
        return jnp.where(positive, log_density, -jnp.inf)

    def _from_noise(self, state: Array, noise: Array, x0: Array) -> Float[Array, " 1"]:
        # A noncentral chi-square variable is the sum of a squared shifted normal variable and a
        # central chi-square variable with one degree of freedom less.
        scale, u, order = _chi_square(state, x0)
        shape = eqx.error_if(order + 0.5, order <= -0.5, _NO_SAMPLES)
        squared = (noise[:1] + jnp.sqrt(2 * u)) ** 2
        return (squared / 2 + gamma_quantile(shape, noise[1])) / scale

    def _require_samples(self, start: Float[Array, "*batch 4"]) -> None:
        if not isinstance(start, jax.core.Tracer):
            _, rate, level, noise = np.moveaxis(np.asarray(start), -1, 0)
            if np.any(4 * rate * level <= noise**2):
                raise ValueError(_NO_SAMPLES)


def _chi_square(t: Array, start: Float[Array, " 4"]) -> tuple[Array, Array, Array]:
    """Return the scale $c$, half the noncentrality $u$, and the order of the Bessel function."""
    x0, rate, level, noise = start
    scale = 2 / (noise**2 * t * mean_decay(rate * t))
    return scale, scale * x0 * jnp.exp(-rate * t), 2 * rate * level / noise**2 - 1


def gamma_quantile(shape: Float[Array, ""], noise: Float[Array, ""]) -> Float[Array, ""]:
    """Return the quantile of a gamma law of unit scale at the probability `ndtr(noise)`."""
    shape, noise = jax.lax.stop_gradient((shape, noise))

    def excess(log_y: Array) -> tuple[Array, Array]:
        y = jnp.exp(log_y)
        lower, upper = gammainc(shape, y) - ndtr(noise), ndtr(-noise) - gammaincc(shape, y)
        # Probabilities above 1/2 are compared in the upper tail, because of rounding.
        return jnp.where(noise < 0, lower, upper), jnp.exp(shape * log_y - y - gammaln(shape))

    # The distribution function is at most y**a / Gamma(a + 1). Its upper tail is at most exp(-s)
    # beyond a + sqrt(2 a s) + s (Laurent and Massart).
    s = -log_ndtr(-noise)
    low = (log_ndtr(noise) + gammaln(shape + 1)) / shape
    high = jnp.log(shape + jnp.sqrt(2 * shape * s) + s)
    return jnp.exp(increasing_root(excess, low, jnp.maximum(low, high)))


# For orders in (0, 300] and arguments in (1e-6, 1e6), the logarithm differs from SciPy's by less
# than 4e-12 with 121 nodes, and by 6e-9 with 81.
_STRETCH = np.linspace(-5.5, 5.5, 121)
_NODES = np.sinh(_STRETCH)
_LOG_WEIGHTS = np.log(np.cosh(_STRETCH) * (_STRETCH[1] - _STRETCH[0]))


def log_scaled_bessel(order: Float[Array, ""], z: Float[Array, ""]) -> Float[Array, ""]:
    r"""Return the logarithm of $(z/2)^{-\nu}e^{-z}I_\nu(z)$, for $\nu > -1$ and $z \ge 0$."""
    upper = 2 * jnp.log(z / 2) + _by_integral(order + 2, z)
    return jnp.logaddexp(upper, jnp.log(order + 1) + _by_integral(order + 1, z))


def _by_integral(order: Float[Array, ""], z: Float[Array, ""]) -> Float[Array, ""]:
    decay = 2 * order + 1
    y, log_weights = _nodes(jax.lax.stop_gradient(decay), jax.lax.stop_gradient(z))
    # z tanh(y) - z without cancellation, and log cosh(y) without overflow.
    exponents = -2 * z * jax.nn.sigmoid(-2 * y) - decay * (jnp.logaddexp(y, -y) - np.log(2.0))
    return logsumexp(exponents + log_weights) - gammaln(order + 0.5) - 0.5 * np.log(np.pi)


def _nodes(decay: Array, z: Array) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Return nodes and log-weights, centred at the peak and scaled by its width."""
    root = jnp.sqrt(decay**2 + 4 * z**2)
    flatness = 2 * decay / (decay + root)  # 1 - tanh(peak)**2
    peak = jnp.arcsinh(2 * z / (decay + root) / jnp.sqrt(flatness))
    width = 1 / jnp.sqrt(flatness * root)
    return peak + width * _NODES.astype(z.dtype), _LOG_WEIGHTS.astype(z.dtype) + jnp.log(width)
