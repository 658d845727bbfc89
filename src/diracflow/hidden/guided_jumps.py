r"""Jumps of particles towards an observation.

**Bootstrap.** Particles are drawn from the transition density and weighted with $p(y | x)$.

**Guided.** Particles are drawn from a Gaussian near the image of the old state and near the
observation: in coordinates without bounds, the product of $N(c, S)$ and $p(y | x)$, approximated at
its maximum by Newton steps (Laplace). The centre $c$ is the image of the old state under zero
noise. $S$, the covariance of images about their centres, is shared by all particles. The weight is
$\rho(x | t, x_0)\,p(y | x)$ over the density of the draw. One particle in sixteen, at random, is
a bootstrap draw, and the density of the draw is that of the mixture: weights are at most sixteen
times those of the bootstrap.

A guided jump costs about as much as three others, so that it must give three times as many
effective particles. `Outlook` decides before each jump, from earlier jumps alone. The evidence
therefore remains unbiased.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..equation.small_matrices import cholesky, solve_lower
from ..sde.domains import each
from ..source.gaussian_source import standard_log_prob
from ..transition.batching import in_batches
from ..transition.programs import images
from ..transition.transition_density import AbstractTransitionDensity, checked_query
from ..uses import simulation
from ..uses.underlying_sde import conditioning_at
from ..uses.weights import systematic

# One particle of so many is a bootstrap draw in a guided jump.
_FREE = 16
# Images from which the covariance is estimated, and Newton steps towards the maximum.
_IMAGES, _NEWTON = 128, 3
# Factor of the standard deviations, since light tails make weights unequal.
_WIDENING = 1.1
# Time of a guided jump, in bootstrap jumps; the gain that is expected before the first one.
_COST, _HOPE = 3.0, 10.0
# Weight of the last jump in what is expected of the next, and speed at which hope returns.
_NEWS, _RETURN = 0.5, 0.1


Observe = Callable[[Float[Array, " d"], Array], Float[Array, ""]]


class Hidden(eqx.Module):
    """A hidden process with its parameters, and the log-likelihood of one observation."""

    density: AbstractTransitionDensity
    observe: Observe
    params: dict[str, Array]

    def conditioning(self, begin: Float[Array, ""]) -> dict[str, Any]:
        """Return the keyword arguments of a query that starts at the time `begin`."""
        return conditioning_at(self.density, self.params, begin)

    def images(self, noise: Array, t: Array, x: Array, begin: Array) -> Float[Array, "n d"]:
        """Map standard normal numbers to states, a time `t` after the states `x`."""
        t, start = checked_query(self.density, t, x0=x, **self.conditioning(begin))
        return in_batches(images, self.density, t, noise, start)

    def log_likelihood(self, x: Float[Array, " d"], y: Array) -> Float[Array, ""]:
        """Return the log-likelihood of an observation at one state."""
        return jnp.asarray(self.observe(x, y), x.dtype)

    def log_likelihoods(self, x: Float[Array, "n d"], y: Array) -> Float[Array, " n"]:
        """Return the log-likelihood of an observation at each state."""
        return jax.vmap(lambda x: self.log_likelihood(x, y))(x)

    def mapped(self, method: str, x: Float[Array, "*n d"]) -> Float[Array, "*n d"]:
        """Apply a map of the domain to each component: `to_real`, `from_real` or `log_slope`."""
        return each(self.density.domain, method, x)


class Jump(NamedTuple):
    """One jump and the observation at its end."""

    begin: Float[Array, ""]
    gap: Float[Array, ""]  # zero for an observation at the start
    y: Array


class Landed(NamedTuple):
    """Particles after a jump."""

    x: Float[Array, "particles d"]
    log_weights: Float[Array, " particles"]  # of the target over the density of the draw
    log_likelihoods: Float[Array, " particles"]


class Outlook(NamedTuple):
    """The prediction of the next jump from earlier ones."""

    log_share: Float[Array, ""]  # effective share of a bootstrap jump
    log_gain: Float[Array, ""]  # that of a guided jump divided by it

    def favours_guidance(self) -> Bool[Array, ""]:
        """Return `True` if a guided jump is expected to be worth its time."""
        return jnp.minimum(self.log_gain, -self.log_share) > jnp.log(_COST)

    def after(self, log_weights: Float[Array, " n"], guided: Array, landed: Landed) -> "Outlook":
        """Return the outlook after a jump, given the weights before it."""
        new = log_weights + landed.log_weights
        twice = 2 * logsumexp(new)
        log_share = twice - logsumexp(new + landed.log_likelihoods)
        gain = twice - logsumexp(new + landed.log_weights) - log_share
        tried = self.log_gain + _NEWS * (gain - self.log_gain)
        waited = self.log_gain + _RETURN * (jnp.log(_HOPE) - self.log_gain)
        found = Outlook(log_share, jnp.where(guided, tried, waited))
        usable = jnp.isfinite(log_share) & jnp.isfinite(gain)
        return jax.tree.map(lambda a, b: jnp.where(usable, a, b), found, self)


def first_outlook(dtype: jnp.dtype) -> Outlook:
    """Return the outlook before the first jump, which is guided."""
    return Outlook(jnp.asarray(-jnp.inf, dtype), jnp.log(jnp.asarray(_HOPE, dtype)))


def bootstrap_jump(hidden: Hidden, key: PRNGKeyArray, x: Array, jump: Jump) -> Landed:
    """Draw from the transition density."""
    new = simulation.jump(hidden.density, key, x, jump.gap, hidden.conditioning(jump.begin))
    log_likelihoods = hidden.log_likelihoods(new, jump.y)
    return Landed(new, log_likelihoods, log_likelihoods)


def guided_jump(
    hidden: Hidden, key: PRNGKeyArray, x: Array, log_weights: Array, jump: Jump
) -> Landed:
    """Draw from Gaussians near the observation, and some particles from the transition density."""
    count, dim = x.shape
    free_key, place_key, guide_key = jr.split(key, 3)
    few = max(1, count // _FREE)
    rows = (jr.randint(place_key, (), 0, count) + _FREE * jnp.arange(few)) % count
    centres, free, factor = _images(hidden, free_key, x, log_weights, rows, jump)
    gaussians = jax.vmap(lambda c: _laplace(hidden, c, factor, jump.y))(centres)
    noise = jr.normal(guide_key, (count, dim), x.dtype)
    z = jax.vmap(_Gaussian.restore, (0, None, 0))(gaussians, factor, noise)
    z = z.at[rows].set(free)
    log_q = jax.vmap(_Gaussian.log_prob, (0, None, 0))(gaussians, factor, z)
    new = hidden.mapped("from_real", z)
    log_slope = jnp.sum(hidden.mapped("log_slope", new), axis=-1)
    conditioning = hidden.conditioning(jump.begin)
    log_rho = hidden.density.log_prob(new, jump.gap, x, **conditioning) - log_slope
    part = jnp.asarray(few / count, x.dtype)
    log_drawn = jnp.logaddexp(jnp.log(part) + log_rho, jnp.log1p(-part) + log_q)
    log_likelihoods = hidden.log_likelihoods(new, jump.y)
    return Landed(new, log_likelihoods + log_rho - log_drawn, log_likelihoods)


def _images(
    hidden: Hidden, key: PRNGKeyArray, x: Array, log_weights: Array, rows: Array, jump: Jump
) -> tuple[Array, Array, Array]:
    """Return centres, free draws of some rows and the factor of the covariance, in coordinates."""
    count, width = len(x), hidden.density.noise_dim
    # Not random, so that the Gaussians depend on earlier jumps only.
    table = jr.normal(jr.key(0), (_IMAGES, width), x.dtype)
    picked = systematic(0.5, jnp.exp(log_weights), _IMAGES)
    free = jr.normal(key, (len(rows), width), x.dtype)
    noise = jnp.concatenate([jnp.zeros((count, width), x.dtype), free, table])
    starts = jnp.concatenate([x, x[rows], x[picked]])
    z = hidden.mapped("to_real", hidden.images(noise, jump.gap, starts, jump.begin))
    centres, free, spread = jnp.split(z, [count, count + len(rows)])
    spread = spread - centres[picked]
    covariance = spread.T @ spread / _IMAGES
    ridge = 1e3 * jnp.finfo(x.dtype).eps * jnp.diag(jnp.diag(covariance))
    return centres, free, jnp.linalg.cholesky(covariance + ridge)


class _Gaussian(NamedTuple):
    """A Gaussian in coordinates in which the images have mean zero and unit covariance."""

    centre: Float[Array, " d"]
    mean: Float[Array, " d"]
    root: Float[Array, "d d"]  # lower triangular; the precision is this times its transpose

    def restore(self, factor: Array, noise: Array) -> Float[Array, " d"]:
        """Map standard normal numbers to a draw."""
        return self.centre + factor @ (self.mean + _WIDENING * _solve_transposed(self.root, noise))

    def log_prob(self, factor: Array, z: Array) -> Float[Array, ""]:
        """Return the log-density at `z`."""
        whitened = solve_triangular(factor, z - self.centre, lower=True)
        noise = self.root.T @ (whitened - self.mean) / _WIDENING
        slopes = jnp.log(jnp.diag(self.root)) - jnp.log(_WIDENING * jnp.diag(factor))
        return standard_log_prob(noise) + jnp.sum(slopes)


def _laplace(hidden: Hidden, centre: Array, factor: Array, y: Array) -> _Gaussian:
    """Return the Gaussian at the maximum of the product of images and likelihood."""

    def log_likelihood(zeta: Array) -> Array:
        return hidden.log_likelihood(hidden.mapped("from_real", centre + factor @ zeta), y)

    def target(zeta: Array) -> Array:
        return log_likelihood(zeta) - 0.5 * zeta @ zeta

    def root(zeta: Array) -> Array:
        return _cholesky_or_eye(-jax.hessian(target)(zeta))

    def newton(_: int, zeta: Array) -> Array:
        factor, gradient = root(zeta), jax.grad(target)(zeta)
        # A likelihood without derivatives here does not guide.
        gradient = jnp.where(jnp.all(jnp.isfinite(gradient)), gradient, 0.0)
        new = zeta + _solve_transposed(factor, solve_lower(factor, gradient))
        return jnp.where(target(new) > target(zeta), new, zeta)

    mean = jax.lax.fori_loop(0, _NEWTON, newton, jnp.zeros_like(centre))
    return _Gaussian(centre, mean, root(mean))


def _cholesky_or_eye(matrix: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """Return the Cholesky factor; the identity if the matrix is not positive definite."""
    factor, eye = cholesky(matrix), jnp.eye(len(matrix), dtype=matrix.dtype)
    return jnp.where(jnp.all(jnp.isfinite(factor)), factor, eye)


def _solve_transposed(lower: Float[Array, "d d"], b: Float[Array, " d"]) -> Float[Array, " d"]:
    """Solve with the transpose of a lower triangular matrix."""
    return solve_lower(lower.T[::-1, ::-1], b[::-1])[::-1]
