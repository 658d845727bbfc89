r"""The modified Bessel function $I_\nu$ in log space, differentiable in order and argument.

For $\nu > -\tfrac12$ Poisson's integral with $s = \tanh y$ is
$I_\nu(z) = \frac{(z/2)^\nu}{\sqrt\pi\,\Gamma(\nu+\frac12)}
\int_{\mathbb R} e^{z\tanh y - (2\nu+1)\log\cosh y}\,dy$.
The integrand is positive with one peak, so a trapezoidal sum around the peak, in the variable
$\operatorname{arsinh}$ of the scaled distance, converges exponentially without cancellation. Lower
orders come from
$I_\nu = I_{\nu+2} + \tfrac{2(\nu+1)}{z}I_{\nu+1}$, whose terms are positive for $\nu > -1$.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, logsumexp
from jaxtyping import Array, Float

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
