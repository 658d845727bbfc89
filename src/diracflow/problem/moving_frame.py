r"""The Fokker--Planck equation in coordinates that move and widen with the density.

A frame $x = m(c) + L(c)\zeta$, with $L$ lower triangular, turns the SDE into one for $\zeta$ in the
clock $c = \sqrt\tau$ (so $d\tau = 2c\,dc$):

$$d\zeta = (\beta(\zeta) - K\zeta)\,dc + S(\zeta)^{1/2}\,dW_c,\qquad
  \beta = L^{-1}(2c\,b(x) - m'),\quad K = L^{-1}L',\quad S = 2c\,L^{-1}\Sigma(x)L^{-\top}.$$

A frame that follows the density has $S \approx K + K^\top$, which leaves $N(0, I)$ unchanged. We
write the density as $N(0, I)$ times $e^r$ and the equation for the ratio $r$. What the frame
accounts for then drops out by algebra: the terms of size $1/c^2$ that a log-density in $x$ would
have to cancel in floating point never appear.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from .sde import SDE


class Frame(eqx.Module):
    """Coordinates in which a density is close to standard normal."""

    mean: Float[Array, " d"]
    factor: Float[Array, "d d"]  # lower triangular

    def standardise(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        r"""$\zeta = L^{-1}(x - m)$."""
        return solve_triangular(self.factor, x - self.mean, lower=True)

    def restore(self, zeta: Float[Array, " d"]) -> Float[Array, " d"]:
        r"""$x = m + L\zeta$."""
        return self.mean + self.factor @ zeta

    def log_det(self) -> Float[Array, ""]:
        r"""$\log\det L$."""
        return jnp.sum(jnp.log(jnp.diag(self.factor)))


def log_ratio_rate(
    sde: SDE,
    log_ratio: Callable[[Float[Array, " d"]], Float[Array, ""]],
    t: Float[Array, ""],
    clock: Float[Array, ""],
    frame: Frame,
    frame_rate: Frame,
    zeta: Float[Array, " d"],
) -> Float[Array, ""]:
    r"""Derivative in the clock that the Fokker--Planck equation assigns to a log-ratio.

    For $r$ the logarithm of a density in $\zeta$ relative to $N(0, I)$, this is

    $$-\nabla\cdot\beta + \beta\cdot\zeta + \tfrac12 S : (\nabla^2 r + \nabla r\,\nabla r^\top)
      + (K\zeta - S\zeta - \beta + \nabla\cdot S)\cdot\nabla r
      + \tfrac12(\zeta^\top S'\zeta - \mathrm{tr}\,S') - \zeta\cdot(\nabla\cdot S)
      + \tfrac12\nabla\cdot\nabla\cdot S,$$

    with $S' = S - K - K^\top$.

    **Arguments:**

    - `sde`: supplies $b$ and $\sigma$.
    - `log_ratio`: the function $r$ of $\zeta$ alone.
    - `t`: the time at which the coefficients are evaluated.
    - `clock`: the clock $c$.
    - `frame`, `frame_rate`: the frame at $c$ and its derivative in $c$.
    - `zeta`: a single point. Use `jax.vmap` for several.

    **Returns:**

    A scalar. All derivatives are directional and forward: along the columns of a square root of
    $S$, twice, and along one vector that gathers the rest.
    """
    inverse = solve_triangular(frame.factor, jnp.eye(len(zeta), dtype=zeta.dtype), lower=True)
    stretch = inverse @ frame_rate.factor

    def drift(y: Float[Array, " d"]) -> Float[Array, " d"]:
        return inverse @ (2 * clock * sde.drift(t, frame.restore(y)) - frame_rate.mean)

    def noise(y: Float[Array, " d"]) -> Float[Array, "d m"]:
        return jnp.sqrt(2 * clock) * (inverse @ sde.diffusion(t, frame.restore(y)))

    def div_cov(y: Float[Array, " d"]) -> Float[Array, " d"]:
        # The divergence of w w^T is w (div w) + (w . grad) w, for each column w.
        w, slopes = noise(y), jax.jacfwd(noise)(y)
        return w @ jnp.einsum("iai->a", slopes) + jnp.einsum("iaj,ja->i", slopes, w)

    beta, columns, spread = drift(zeta), noise(zeta), div_cov(zeta)
    push = columns @ (columns.T @ zeta)  # S zeta
    along, twice = jax.vmap(lambda w: _two_derivatives(log_ratio, zeta, w), 1)(columns)
    rest = stretch @ zeta - push - beta + spread
    _, gathered = jax.jvp(log_ratio, (zeta,), (rest,))
    # S' only through zeta . S' zeta and its trace.
    excess = zeta @ push - 2 * zeta @ stretch @ zeta
    excess_trace = jnp.sum(columns**2) - 2 * jnp.trace(stretch)
    sources = zeta @ (beta - spread) - jnp.trace(jax.jacfwd(drift)(zeta))
    curved = jnp.trace(jax.jacfwd(div_cov)(zeta))
    return sources + gathered + 0.5 * (jnp.sum(twice + along**2) + excess - excess_trace + curved)


def _two_derivatives(
    function: Callable, point: Float[Array, " d"], direction: Float[Array, " d"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """First and second derivative along `direction`."""

    def slope(y: Float[Array, " d"]) -> Float[Array, ""]:
        return jax.jvp(function, (y,), (direction,))[1]

    return jax.jvp(slope, (point,), (direction,))
