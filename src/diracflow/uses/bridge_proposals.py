r"""Guided proposals for one step of a bridge.

A path is at $y$, a time $r$ before it reaches $x_1$. Its next point $y'$, a time $h$ later, is
drawn from a Gaussian that depends on where the noise enters.

**Noise in every component.** The proposal has the guided mean $y + h(b + \Sigma\nabla\log\rho)$ and
the covariance $\Sigma h(r - h)/r$ of a Brownian bridge. A Brownian motion is bridged exactly by
steps of any length.

**Degenerate noise.** There the proposal above has no density. The target density of $y'$ is
$p_h(y' | y)\,\rho(x_1 | r - h, y')$ up to a constant. If both factors are Gaussian,
$p_h = N(m, LL^\top)$ and, linearised at $m$, $\rho = N(x_1; \Phi y' + \dots, RR^\top)$, then in
$y' = m + L\zeta$ it is normal with precision $I + B^\top B$, $B = R^{-1}\Phi L$. Both Gaussians
come from moment closure; the mean uses the score of the density at $m$. Linear SDEs are bridged
exactly by steps of any length. The standard deviations of the components scale with
different powers of $h$; in $\zeta$ all numbers are of order one.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, PRNGKeyArray

from ..equation.moving_frame import Frame
from ..source.gaussian_source import AbstractGaussianSource, standard_log_prob
from ..transition.transition_density import AbstractTransitionDensity


class AbstractProposal(eqx.Module):
    """Gaussian proposals for the steps of a path that ends at `end`."""

    density: AbstractTransitionDensity  # its start score guides the path
    local: AbstractTransitionDensity  # the target transition over one step
    params: dict[str, Array]
    arrival: Float[Array, ""]  # time at which the path reaches its end
    end: Float[Array, " d"]
    source: AbstractGaussianSource  # the Gaussian of one unconditioned step

    @abc.abstractmethod
    def frames(self, y: Float[Array, "n d"], r: Float[Array, ""], h: Float[Array, ""]) -> Frame:
        """Return the proposals from the points `y`: `r` is the remaining time, `h` the step."""

    def step(
        self, key: PRNGKeyArray, y: Float[Array, "n d"], r: Float[Array, ""], h: Float[Array, ""]
    ) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
        """Return the next points, and the log-ratios of target to proposal there."""
        frames = self.frames(y, r, h)
        noise = jr.normal(key, y.shape, y.dtype)
        new = jax.vmap(Frame.restore)(frames, noise)
        log_q = jax.vmap(lambda f, z: standard_log_prob(z) - f.log_det())(frames, noise)
        return new, self.local.log_prob(new, h, y, **self.keywords(self.local, r)) - log_q

    def keywords(self, density: AbstractTransitionDensity, r: Array) -> dict[str, Any]:
        """Return the keyword arguments of a query that starts a time `r` before the end."""
        return {
            "params": self.params if density.params else None,
            "start_time": self.arrival - r if density.start_time is None else None,
        }


class GuidedEuler(AbstractProposal):
    """Euler steps of Doob's transform, with the covariance of a Brownian bridge."""

    def frames(self, y: Float[Array, "n d"], r: Float[Array, ""], h: Float[Array, ""]) -> Frame:
        scores = self.density.start_score(self.end, r, y, **self.keywords(self.density, r))
        return jax.vmap(lambda y, score: self._frame(y, score, r, h))(y, scores)

    def _frame(self, y: Array, score: Array, r: Array, h: Array) -> Frame:
        sde = self.source.sde
        covariance = sde.covariance(self.arrival - r, y)
        guided = sde.drift(self.arrival - r, y) + covariance @ score
        factor = jnp.sqrt(h * (r - h) / r) * jnp.linalg.cholesky(covariance)
        return Frame(y + h * guided, factor)


class GuidedLinearised(AbstractProposal):
    """Steps of the linearised SDE, conditioned on the end."""

    def frames(self, y: Float[Array, "n d"], r: Float[Array, ""], h: Float[Array, ""]) -> Frame:
        free = jax.vmap(lambda y: self._free(h, y, r))(y)
        later = self.keywords(self.density, r - h)
        scores = self.density.start_score(self.end, r - h, free.mean, **later)
        return jax.vmap(lambda free, score: self._conditioned(free, score, r - h))(free, scores)

    def _free(self, h: Array, y: Float[Array, " d"], r: Array) -> Frame:
        """Return the unconditioned Gaussian after a time `h`, from a time `r` before the end."""
        known = self.source.start_time is not None
        return self.source.frame(h, y if known else jnp.append(y, self.arrival - r))

    def _conditioned(self, free: Frame, score: Float[Array, " d"], left: Float[Array, ""]) -> Frame:
        eye = jnp.eye(len(score), dtype=score.dtype)
        ahead = self._free(left, free.mean, left)
        transfer = jax.jacfwd(lambda x: self._free(left, x, left).mean)(free.mean)
        pull = solve_triangular(ahead.factor, transfer @ free.factor, lower=True)
        # A precision U U^T with U upper triangular has the covariance N N^T with N = U^-T lower.
        upper = jnp.linalg.cholesky((eye + pull.T @ pull)[::-1, ::-1])[::-1, ::-1]
        narrowing = solve_triangular(upper, eye, lower=False).T
        shift = narrowing @ (narrowing.T @ (free.factor.T @ score))
        return Frame(free.mean + free.factor @ shift, free.factor @ narrowing)


@eqx.filter_jit
def simulate_paths(
    proposal: AbstractProposal, key: PRNGKeyArray, x0: Array, remaining: Array, paths: int
) -> tuple[Float[Array, "steps-1 paths d"], Float[Array, " paths"]]:
    """Return the points of all paths between the two ends, and their log-weights."""
    r = remaining[:-2]
    h = r - remaining[1:-1]

    def step(state: tuple, inputs: tuple) -> tuple[tuple, Array]:
        y, log_weights = state
        new, log_ratio = proposal.step(inputs[0], y, *inputs[1:])
        return (new, log_weights + log_ratio), new

    first = jnp.broadcast_to(x0, (paths, len(x0))), jnp.zeros(paths, x0.dtype)
    (y, log_weights), inner = jax.lax.scan(step, first, (jr.split(key, len(r)), r, h))
    last = proposal.keywords(proposal.density, remaining[-2])
    log_prob = proposal.density.log_prob(proposal.end, remaining[-2], y, **last)
    return inner, log_weights + log_prob
