r"""Steps of a bridge where noise does not enter every component.

The next point $y'$ of a path tied to $x_1$ after a time $r$ has the density
$p_h(y' | y)\,\rho(x_1 | r - h, y')$ up to a constant. If both factors are Gaussian,
$p_h = N(m, LL^\top)$ and, linearised at $m$, $\rho = N(x_1; \Phi y' + \dots, RR^\top)$, then in
$y' = m + L\zeta$ it is normal with precision $I + B^\top B$, $B = R^{-1}\Phi L$. The Gaussians are
those of moment closure; the mean follows the density's own score at $m$. Linear SDEs are bridged
exactly by steps of any length.

Widths differ by powers of the step from component to component. In $\zeta$ all numbers are of order
one.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, PRNGKeyArray

from ..equation.moving_frame import Frame
from ..source.gaussian_source import AbstractGaussianSource, standard_log_prob
from .chain import AbstractChain


class LinearisedChain(AbstractChain):
    """Steps of the linearised equation."""

    source: AbstractGaussianSource

    def step(
        self, key: PRNGKeyArray, y: Float[Array, "n d"], r: Float[Array, ""], h: Float[Array, ""]
    ) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
        """New points, and what they add to the log-weights."""
        free = jax.vmap(lambda y: self._free(h, y, r))(y)
        later = self.keywords(self.density, r - h)
        scores = self.density.start_score(self.end, r - h, free.mean, **later)
        frames = jax.vmap(lambda free, score: self._tied(free, score, r - h))(free, scores)
        noise = jr.normal(key, y.shape, y.dtype)
        new = jax.vmap(Frame.restore)(frames, noise)
        log_q = jax.vmap(lambda f, z: standard_log_prob(z) - f.log_det())(frames, noise)
        return new, self.local.log_prob(new, h, y, **self.keywords(self.local, r)) - log_q

    def _free(self, h: Array, y: Float[Array, " d"], r: Array) -> Frame:
        """The Gaussian of moment closure after a time `h`, `r` being left before."""
        known = self.source.start_time is not None
        return self.source.frame(h, y if known else jnp.append(y, self.arrival - r))

    def _tied(self, free: Frame, score: Float[Array, " d"], left: Float[Array, ""]) -> Frame:
        eye = jnp.eye(len(score), dtype=score.dtype)
        ahead = self._free(left, free.mean, left)
        transfer = jax.jacfwd(lambda x: self._free(left, x, left).mean)(free.mean)
        pull = solve_triangular(ahead.factor, transfer @ free.factor, lower=True)
        # A precision U U^T with U upper triangular has the covariance N N^T with N = U^-T lower.
        upper = jnp.linalg.cholesky((eye + pull.T @ pull)[::-1, ::-1])[::-1, ::-1]
        narrowing = solve_triangular(upper, eye, lower=False).T
        shift = narrowing @ (narrowing.T @ (free.factor.T @ score))
        return Frame(free.mean + free.factor @ shift, free.factor @ narrowing)
