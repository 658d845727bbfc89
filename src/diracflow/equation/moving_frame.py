r"""The Fokker--Planck equation in a frame that moves and widens with the density.

A frame $x = m(c) + L(c)\zeta$ turns the SDE into one for $\zeta$ in the
clock $c = \sqrt\tau$ (so $d\tau = 2c\,dc$):

$$d\zeta = (\beta(\zeta) - K\zeta)\,dc + S(\zeta)^{1/2}\,dW_c,\qquad
  \beta = L^{-1}(2c\,b(x) - m'),\quad K = L^{-1}L',\quad S = 2c\,L^{-1}\Sigma(x)L^{-\top}.$$

A frame that follows the density has $S \approx K + K^\top$, which leaves $N(0, I)$ unchanged. We
write the density as $N(0, I)$ times $e^r$ and the equation for the log-ratio $r$. The motion of the
frame then cancels algebraically: terms of size $1/c^2$, which for a log-density in $x$ cancel only
in floating point, never appear.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..sde.sde import SDE
from .small_matrices import solve_lower


class Basis(eqx.Module):
    """Axes given by the columns of a constant matrix."""

    columns: Float[np.ndarray, "d d"]
    inverse: Float[np.ndarray, "d d"]
    log_det: float = eqx.field(static=True)  # of `columns`

    def __init__(self, columns: Float[np.ndarray, "d d"]):
        self.columns, self.inverse = columns, np.linalg.inv(columns)
        self.log_det = float(np.linalg.slogdet(columns)[1])

    def along(self, x: Float[Array, "d *k"]) -> Float[Array, "d *k"]:
        """Return the coordinates of the state `x` along the axes."""
        return jnp.asarray(self.inverse, x.dtype) @ x

    def state(self, y: Float[Array, "d *k"]) -> Float[Array, "d *k"]:
        """Return the state with the coordinates `y`."""
        return jnp.asarray(self.columns, y.dtype) @ y


class Frame(eqx.Module):
    r"""Coordinates in which a density is close to standard normal.

    **Arguments:**

    - `mean`: $m$.
    - `factor`: a lower triangular matrix, which is $L$ unless there is a basis.
    - `basis`: if given, $L$ is the matrix of its columns times `factor`.
    - `shape`: if given, third cumulants in these coordinates, see `skew_map`.
    """

    mean: Float[Array, " d"]
    factor: Float[Array, "d d"]
    basis: Basis | None = None
    shape: Float[Array, " m"] | None = None

    def standardise(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        r"""Return $\zeta = L^{-1}(x - m)$."""
        centred = x - self.mean
        along = centred if self.basis is None else self.basis.along(centred)
        return solve_lower(self.factor, along)

    def restore(self, zeta: Float[Array, " d"]) -> Float[Array, " d"]:
        r"""Return $x = m + L\zeta$."""
        moved = self.factor @ zeta
        return self.mean + (moved if self.basis is None else self.basis.state(moved))

    def log_det(self) -> Float[Array, ""]:
        r"""Return $\log|\det L|$."""
        log_det = jnp.sum(jnp.log(jnp.diag(self.factor)))
        return log_det if self.basis is None else log_det + self.basis.log_det

    def inverses(self) -> tuple[Float[Array, "d d"], Float[Array, "d d"]]:
        r"""Return the inverse of `factor`, and $L^{-1}$."""
        inverse = solve_lower(self.factor, jnp.eye(len(self.factor), dtype=self.factor.dtype))
        if self.basis is None:
            return inverse, inverse
        return inverse, inverse @ jnp.asarray(self.basis.inverse, inverse.dtype)


class RatioEquation(eqx.Module):
    r"""The Fokker--Planck equation for a log-ratio, at one point.

    For $r$ the logarithm of a density in $\zeta$ relative to $N(0, I)$, the derivative in the clock
    is $f_0 + g\cdot\nabla r + \tfrac12 S : (\nabla^2 r + \nabla r\,\nabla r^\top)$, with

    $$f_0 = -\nabla\cdot\beta + \beta\cdot\zeta + \tfrac12(\zeta^\top S'\zeta - \mathrm{tr}\,S')
      - \zeta\cdot(\nabla\cdot S) + \tfrac12\nabla\cdot\nabla\cdot S,\qquad
      g = K\zeta - S\zeta - \beta + \nabla\cdot S$$

    and $S' = S - K - K^\top$. Derivatives of $r$ are taken in forward mode along $g$ and the
    columns of a square root of $S$, all at once because that compiles fastest.
    """

    zeta: Float[Array, " d"]
    source: Float[Array, ""]  # f_0
    directions: Float[Array, "d m+1"]  # a square root of S, and g

    def rate(
        self, log_ratio: Callable[[Float[Array, " d"]], Float[Array, ""]]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Return the log-ratio at `zeta` and its derivative in the clock by the equation."""
        value, along, twice = self._along(log_ratio)
        return value, self.source + along[-1] + 0.5 * jnp.sum(twice[:-1] + along[:-1] ** 2)

    def linearised(
        self, log_ratio_and_gradient: Callable[[Float[Array, " d"]], tuple[Array, Array]]
    ) -> tuple[Float[Array, ""], Float[Array, " k"], Float[Array, " k"]]:
        """Return the rate, the parameter gradient of the log-ratio, and that of the rate.

        The argument returns a log-ratio and its parameter gradient. Differentiating both together
        takes two thirds of the compile time of a reverse derivative of the rate, and runs faster.
        """
        (_, gradient), (along, along_gradient), (twice, twice_gradient) = self._along(
            log_ratio_and_gradient
        )
        rate = self.source + along[-1] + 0.5 * jnp.sum(twice[:-1] + along[:-1] ** 2)
        first = along_gradient[-1] + along[:-1] @ along_gradient[:-1]
        return rate, gradient, first + 0.5 * jnp.sum(twice_gradient[:-1], axis=0)

    def _along(self, function: Callable) -> tuple:
        """Return the value, and first and second derivatives along each direction."""

        def line(direction: Float[Array, " d"]) -> tuple:
            def value_and_slope(y: Float[Array, " d"]) -> tuple:
                return jax.jvp(function, (y,), (direction,))

            (value, slope), (_, curvature) = jax.jvp(value_and_slope, (self.zeta,), (direction,))
            return value, slope, curvature

        # The value does not depend on the direction.
        return jax.vmap(line, 1, (None, 0, 0))(self.directions)


def ratio_equation(
    sde: SDE,
    t: Float[Array, ""],
    clock: Float[Array, ""],
    frame: Frame,
    frame_rate: Frame,
    zeta: Float[Array, " d"],
) -> RatioEquation:
    r"""Return the equation at the point `zeta`; `frame_rate` is the derivative of the frame in $c$.

    Coefficients are evaluated at the time `t`. Use `jax.vmap` for several points.
    """
    of_factor, inverse = frame.inverses()
    # The basis is constant and cancels.
    stretch = of_factor @ frame_rate.factor

    def drift(y: Float[Array, " d"]) -> Float[Array, " d"]:
        return inverse @ (2 * clock * sde.drift(t, frame.restore(y)) - frame_rate.mean)

    def noise(y: Float[Array, " d"]) -> Float[Array, "d m"]:
        return jnp.sqrt(2 * clock) * (inverse @ sde.diffusion(t, frame.restore(y)))

    def div_cov(y: Float[Array, " d"]) -> Float[Array, " d"]:
        # The divergence of w w^T is w (div w) + (w . grad) w, for each column w.
        w, jacobian = noise(y), jax.jacfwd(noise)(y)
        return w @ jnp.einsum("iai->a", jacobian) + jnp.einsum("iaj,ja->i", jacobian, w)

    beta, columns, spread = drift(zeta), noise(zeta), div_cov(zeta)
    push = columns @ (columns.T @ zeta)  # S zeta
    # Only zeta . S' zeta and the trace of S' are needed.
    excess = zeta @ push - 2 * zeta @ stretch @ zeta
    excess_trace = jnp.sum(columns**2) - 2 * jnp.trace(stretch)
    sources = zeta @ (beta - spread) - jnp.trace(jax.jacfwd(drift)(zeta))
    curved = jnp.trace(jax.jacfwd(div_cov)(zeta))
    remaining = stretch @ zeta - push - beta + spread
    return RatioEquation(
        zeta=zeta,
        source=sources + 0.5 * (excess - excess_trace + curved),
        directions=jnp.column_stack([columns, remaining]),
    )
