r"""Integrals of a density over some of its components, given the others.

All components are mapped to the real line. A Gaussian fitted to the law gives a first location and
scale of the hidden components $h$ given the known ones. The density at points of this Gaussian
gives a second Gaussian, which is narrower where the law is not normal. Derivatives do not pass
through either.

Up to two hidden components are integrated by the trapezoidal rule in $u$, with $h = m + L\sinh u$,
which converges exponentially. The two rules are shifted against each other by half a step. More
components are integrated by importance sampling: scrambled Sobol points of a mixture of both
Gaussians, widened, are weighted by the density over that of the mixture. Weights are exactly equal
for no law, but for a normal law they hardly vary.
"""

from typing import TYPE_CHECKING, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from ..sde.domains import each
from .root_finding import without_gradient
from .weighted_points import WeightedPoints, normal_sets

if TYPE_CHECKING:
    from .abstract_distribution import AbstractDistribution

# Nodes along each axis of the first and of the second rule, by the number of hidden components.
_AXIS = {0: (1, 1), 1: (81, 97), 2: (33, 49)}
# The rule ends this number of standard deviations from the mean.
_REACH = 18.0
# Points of the first Gaussian, in the case of importance sampling.
_FIRST = 1024
# Standard deviations of the proposals relative to those of the second and the first Gaussian, and
# the fraction of points drawn from the second.
_WIDENED, _WIDE, _FRACTION = 1.05, 1.6, 0.875
# Part of the first covariance that is added to the second: it must not collapse to one point.
_FLOOR = 3e-3


class Gaussian(NamedTuple):
    """Mean and Cholesky factor of the covariance of the hidden components."""

    mean: Float[Array, "*batch h"]
    factor: Float[Array, "*batch h h"]

    def points(self, z: Float[Array, "n h"]) -> Float[Array, "n *batch h"]:
        """Return the images of standard normal points."""
        return self.mean[None] + jnp.einsum("...ij,nj->n...i", self.factor, z)

    def log_det(self) -> Float[Array, "*batch"]:
        """Return the logarithm of the determinant of the factor."""
        return jnp.sum(jnp.log(jnp.diagonal(self.factor, axis1=-2, axis2=-1)), axis=-1)

    def log_prob(self, h: Float[Array, "n *batch h"]) -> Float[Array, "n *batch"]:
        """Return the log-density."""
        inverse = jnp.linalg.inv(self.factor)
        z = jnp.einsum("...ij,n...j->n...i", inverse, h - self.mean[None])
        constant = 0.5 * h.shape[-1] * np.log(2 * np.pi)
        return -0.5 * jnp.sum(z**2, axis=-1) - constant - self.log_det()[None]


class Nodes(NamedTuple):
    """States of the hidden components; the sum of the weights of a set is the integral."""

    h: Float[Array, "sets n *batch h"]
    log_weights: Float[Array, "sets n *batch"]

    def log_integral(self) -> tuple[Float[Array, "*batch"], Float[Array, "*batch"]]:
        """Return the logarithm of the integral, and its relative standard error."""
        parts = logsumexp(self.log_weights, axis=1)
        value = logsumexp(parts, axis=0) - np.log(len(parts))
        ratios = jnp.exp(parts - jnp.where(jnp.isfinite(value), value, 0.0)[None])
        return value, jnp.std(ratios, axis=0, ddof=1) / np.sqrt(len(parts))


class HiddenComponents(eqx.Module):
    """The density of a law as a function of its hidden components, given the known ones."""

    law: "AbstractDistribution"
    mean: Float[Array, "*batch d"]  # of the coordinates on the real line
    covariance: Float[Array, "*batch d d"]
    known: tuple[int, ...] = eqx.field(static=True)
    hidden: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, law: "AbstractDistribution", known: tuple[int, ...]):
        self.law, self.known = law, known
        self.hidden = tuple(i for i in range(law.dim) if i not in known)
        points = without_gradient(law)._weighted(_FIRST, 0)
        real = each(law.domain, "to_real", points.x)
        mean, covariance = WeightedPoints(real, points.weights).moments()
        self.mean, self.covariance = jax.lax.stop_gradient((mean, covariance))

    @property
    def by_quadrature(self) -> bool:
        """`True` if the integral is computed by the trapezoidal rule."""
        return len(self.hidden) <= 2

    def rows(self, points: int) -> int:
        """Return the number of densities evaluated for one value of the known components."""
        if self.by_quadrature:
            first, second = _AXIS[len(self.hidden)]
            return first ** len(self.hidden) + 2 * second ** len(self.hidden)
        return _FIRST + points

    def noise(self, points: int, key: object) -> Float[Array, "sets n h"] | None:
        """Return the noise of `nodes`, unless the integral is computed by the trapezoidal rule."""
        if self.by_quadrature:
            return None
        return jnp.asarray(normal_sets(points, len(self.hidden), key))

    @eqx.filter_jit
    def nodes(
        self, known: Float[Array, "*batch k"], noise: Float[Array, "sets n h"] | None
    ) -> Nodes:
        """Return weighted states of the hidden components given the known ones."""
        first, second = self._gaussians(known)
        if noise is not None:
            return self._importance(known, noise, first, second)
        count = len(self.hidden)
        sets = [_trapezoidal(_AXIS[count][1], count, shift) for shift in (0.0, 0.5)]
        z, log_steps = (np.stack(part) for part in zip(*sets, strict=True))
        h = second.points(jnp.asarray(np.concatenate(z), known.dtype))
        log_density = self._log_prob(self.law, known, h) + second.log_det()[None]
        ones = [1] * (known.ndim - 1)
        log_weights = jnp.asarray(log_steps, known.dtype).reshape(-1, *ones) + log_density
        return self._in_sets(h, log_weights, len(sets))

    def _importance(
        self,
        known: Float[Array, "*batch k"],
        noise: Float[Array, "sets n h"],
        first: Gaussian,
        second: Gaussian,
    ) -> Nodes:
        """Return importance-weighted states made of standard normal noise."""
        wide = Gaussian(first.mean, _WIDE * first.factor)
        narrow = Gaussian(second.mean, _WIDENED * second.factor)
        sets, each, _ = noise.shape
        share = round(_FRACTION * each)
        mixed = [(narrow, noise[:, :share]), (wide, noise[:, share:])]
        parts = [g.points(z.reshape(-1, z.shape[-1])) for g, z in mixed if z.size]
        parts = [p.reshape(sets, -1, *p.shape[1:]) for p in parts]
        h = jnp.concatenate(parts, axis=1).reshape(sets * each, *parts[0].shape[2:])
        log_proposal = jnp.logaddexp(
            narrow.log_prob(h) + np.log(share / each),
            wide.log_prob(h) + np.log(max(1 - share / each, 1e-300)),
        )
        log_weights = self._log_prob(self.law, known, h) - log_proposal - np.log(each)
        return self._in_sets(h, log_weights, sets)

    def _in_sets(self, h: Array, log_weights: Array, sets: int) -> Nodes:
        states = each([self.law.domain[i] for i in self.hidden], "from_real", h)
        split = lambda a: a.reshape(sets, len(a) // sets, *a.shape[1:])
        return Nodes(split(states), split(log_weights))

    def _log_prob(
        self, law: "AbstractDistribution", known: Float[Array, "*batch k"], h: Array
    ) -> Float[Array, "n *batch"]:
        """Return the log-density of the coordinates of the hidden components."""
        domain = [law.domain[i] for i in self.hidden]
        states = each(domain, "from_real", h)
        slopes = jnp.sum(each(domain, "log_slope", states), axis=-1)
        value = law._log_probs(self.joined(known, states)) - slopes
        return jnp.where(jnp.isfinite(value), value, -jnp.inf)

    def joined(self, known: Float[Array, "*batch k"], states: Array) -> Float[Array, "*n d"]:
        """Return whole states, from known components and those that are hidden."""
        lead = states.shape[:-1]
        known = known.reshape(*[1] * (len(lead) + 1 - known.ndim), *known.shape)
        shape = np.broadcast_shapes(lead, known.shape[:-1])
        parts = [jnp.broadcast_to(a, (*shape, a.shape[-1])) for a in (known, states)]
        order = np.argsort([*self.known, *self.hidden])
        return jnp.concatenate(parts, axis=-1)[..., order]

    def _gaussians(self, known: Float[Array, "*batch k"]) -> tuple[Gaussian, Gaussian]:
        """Return the Gaussian of the fitted law, and the one fitted at its points."""
        known, law = jax.lax.stop_gradient(known), without_gradient(self.law)
        first, count = self._conditional_gaussian(known), len(self.hidden)
        if self.by_quadrature:
            z, log_steps = _trapezoidal(_AXIS[count][0], count, 0.0)
        else:
            z = normal_sets(_FIRST, count, 0).reshape(_FIRST, count)
            log_steps = 0.5 * np.sum(z**2, axis=-1)
            z = _WIDE * z
        h = first.points(jnp.asarray(z, known.dtype))
        ones = [1] * (known.ndim - 1)
        log_weights = jnp.asarray(log_steps, known.dtype).reshape(-1, *ones)
        log_weights = log_weights + self._log_prob(law, known, h)
        second = _refitted(first, h, log_weights)
        return jax.lax.stop_gradient((first, second))

    def _conditional_gaussian(self, known: Float[Array, "*batch k"]) -> Gaussian:
        given, rest = np.array(self.known, dtype=int), np.array(self.hidden, dtype=int)
        y = each([self.law.domain[i] for i in self.known], "to_real", known)
        across = self.covariance[..., rest[:, None], given[None]]
        within = self.covariance[..., given[:, None], given[None]]
        gain = jnp.swapaxes(jnp.linalg.solve(within, jnp.swapaxes(across, -1, -2)), -1, -2)
        mean = self.mean[..., rest] + jnp.einsum(
            "...ij,...j->...i", gain, y - self.mean[..., given]
        )
        spread = self.covariance[..., rest[:, None], rest[None]]
        spread = spread - gain @ jnp.swapaxes(across, -1, -2)
        shape = (*mean.shape, mean.shape[-1])
        return Gaussian(mean, jnp.broadcast_to(jnp.linalg.cholesky(spread), shape))


def _refitted(
    first: Gaussian, h: Float[Array, "n *batch h"], log_weights: Float[Array, "n *batch"]
) -> Gaussian:
    """Return the Gaussian with the moments of weighted points, or the first if all are zero."""
    top = jnp.max(log_weights, axis=0)
    some = jnp.isfinite(top)
    weights = jnp.exp(log_weights - jnp.where(some, top, 0.0)[None])
    weights = weights / jnp.where(some, jnp.sum(weights, axis=0), 1.0)[None]
    mean = jnp.sum(weights[..., None] * h, axis=0)
    centred = h - mean[None]
    spread = jnp.einsum("n...,n...i,n...j->...ij", weights, centred, centred)
    floor = _FLOOR * first.factor @ jnp.swapaxes(first.factor, -1, -2)
    factor = jnp.linalg.cholesky(spread + floor)
    good = some & jnp.all(jnp.isfinite(factor), axis=(-2, -1))
    return Gaussian(
        jnp.where(good[..., None], mean, first.mean),
        jnp.where(good[..., None, None], factor, first.factor),
    )


def _trapezoidal(axis: int, dim: int, shift: float) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and log-weights of the product rule in the stretched variable."""
    if dim == 0:
        return np.zeros((1, 0)), np.zeros(1)
    u, step = np.linspace(-np.arcsinh(_REACH), np.arcsinh(_REACH), axis, retstep=True)
    u = u + shift * step
    grids = np.meshgrid(*[np.sinh(u)] * dim, indexing="ij")
    log_weights = np.meshgrid(*[np.log(step * np.cosh(u))] * dim, indexing="ij")
    return np.stack([g.ravel() for g in grids], axis=-1), sum(w.ravel() for w in log_weights)
