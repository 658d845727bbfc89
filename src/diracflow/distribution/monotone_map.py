r"""One-dimensional laws given by an increasing map $T$ of a standard normal variable.

The distribution function is $\Phi(T^{-1}(x))$ and quantiles are $T(\Phi^{-1}(q))$, both exact.
Expectations are integrals of $f(T(z))\varphi(z)$ over panels of $z$.
"""

from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from .root_finding import increasing_root, newton_step, panel_points, without_gradient
from .weighted_points import WeightedPoints

if TYPE_CHECKING:
    from .abstract_distribution import AbstractDistribution

# Normal variables of larger magnitude have a probability below 1e-43.
_REACH = 14.0
# The bracket of inverse images; beyond it the distribution function underflows.
_FAR = 40.0


def normal_nodes(law: "AbstractDistribution", panels: int) -> WeightedPoints:
    """Return the images of two Gauss--Legendre rules with different panels."""
    reach = jnp.asarray([_REACH, _REACH * (1 + 1 / panels)], jnp.result_type(float))
    z, weights = (part.T for part in panel_points(-reach, 2 * reach / panels, panels))
    ones = [1] * len(law.batch_shape)
    x = law._images(z.reshape(*z.shape, *ones, 1))
    return WeightedPoints(x, (weights * norm.pdf(z)).reshape(*z.shape, *ones))


@eqx.filter_jit
def normal_of(law: "AbstractDistribution", x: Float[Array, "*batch"]) -> Array:
    r"""Return $z$ with $T(z) = x$; infinite outside the domain. Derivatives are exact."""
    [domain] = law.domain
    full = jnp.broadcast_shapes(x.shape, law.batch_shape)
    x = jnp.broadcast_to(x, full)
    inside = domain.contains(x) & jnp.isfinite(x)
    target = domain.to_real(jnp.where(inside, x, domain.centre))
    fixed = without_gradient(law)

    def image(law: "AbstractDistribution", z: Array) -> Array:
        return domain.to_real(law._images(z[..., None])[..., 0])

    def residual(z: Array) -> tuple[Array, Array]:
        value, slope = jax.jvp(lambda z: image(fixed, z), (z,), (jnp.ones_like(z),))
        return value - jax.lax.stop_gradient(target), slope

    end = jnp.full_like(target, _FAR)
    z = increasing_root(residual, jax.lax.stop_gradient(-end), jax.lax.stop_gradient(end))
    z = newton_step(z, image(law, z) - target, residual(z)[1])
    beyond = jnp.where(x <= domain.centre, -jnp.inf, jnp.inf)
    return jnp.where(inside, z, beyond)
