r"""Distributions of states, with everything that follows from their density and their draws.

A subclass says how to evaluate its density, how to draw, and how to represent the law by weighted
points. Moments, distribution functions, marginals and conditionals are the same for all.

- One component, with an increasing map of a normal variable: `monotone_map`.
- One component, with a density: `panels`.
- Several components: quasi-random points, the same ones in every call with the same `key`. Results
  are then smooth functions of time, start and parameters. Distribution functions: `components`.
"""

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.special import log_ndtr, ndtr, ndtri
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from ..sde.argument_checks import (
    checked_count,
    checked_key,
    checked_point,
    checked_shape,
    real_numbers,
)
from ..sde.domains import AbstractDomain
from .components import components_of, tail_estimates
from .law_checks import (
    checked_levels,
    checked_options,
    checked_points,
    function_values,
    random_key,
    require_numbers,
)
from .lazy_plot import Drawn
from .monotone_map import normal_nodes, normal_of
from .panels import panel_nodes
from .weighted_points import Estimate, WeightedPoints, normal_sets

# Default number of points of an expectation.
POINTS = 4096
# Points of a panel of an expectation in one dimension.
_PER_PANEL = 64


class Traits(NamedTuple):
    """Properties of a law that decide how distribution functions and integrals are computed."""

    monotone: bool = False  # `_images` maps one normal variable to one component, and increases
    integrable: bool = True  # the density of one component is accurate enough to be integrated
    cheap: bool = True  # the density can be evaluated at a million points
    smooth: bool = False  # `_images` is smooth in arguments, and in the noise after the `jumps`
    jumps: int = 0  # number of noise variables, the first ones, in which `_images` may jump


class AbstractDistribution(Drawn, eqx.Module):
    r"""A law of states with a density.

    The last axis of points is the state. Leading axes broadcast against `batch_shape`, the shape of
    times, starts and parameters. A law that was asked for with a scalar start has states without
    that axis.

    Methods with `points` and `key` are exact up to rounding in one dimension. In several they are
    means over `points` quasi-random points made from `key`, a seed or a random key.

    `plot` draws a curve, a heat map, or the spread of more components.
    """

    # By identity, so that `jax.jit(law.log_prob)` works; arrays have no hash.
    __hash__ = object.__hash__
    if not TYPE_CHECKING:
        # Equinox would turn each bound method into a pytree.
        __getattribute__ = object.__getattribute__

    @property
    @abc.abstractmethod
    def dim(self) -> int:
        """Number of components of a state."""

    @property
    @abc.abstractmethod
    def domain(self) -> tuple[AbstractDomain, ...]:
        """The domain of each component."""

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The shape of times, starts and parameters: one law for each entry."""
        return ()

    @abc.abstractmethod
    def _log_probs(self, x: Float[Array, "*batch d"]) -> Float[Array, "*batch"]:
        """Return the log-density at checked points."""

    @property
    def noise_dim(self) -> int:
        """Number of standard normal variables that `_images` maps to a state."""
        return self.dim

    def _images(self, noise: Float[Array, "*batch m"]) -> Float[Array, "*batch d"]:
        """Return the images of standard normal noise, if the law is such a map."""
        raise ValueError(f"A {type(self).__name__} is not a map of normal noise.")

    def _simulated(self, points: int, key: Any) -> WeightedPoints:
        """Return weighted points that represent the law, quasi-random ones if possible."""
        noise = jnp.asarray(normal_sets(points, self.noise_dim, key))
        ones = [1] * len(self.batch_shape)
        x = self._images(noise.reshape(*noise.shape[:2], *ones, noise.shape[-1]))
        return WeightedPoints(x, jnp.full((*noise.shape[:2], *ones), 1 / noise.shape[1], x.dtype))

    def _draw(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "*shape d"]:
        """Return independent draws."""
        return self._images(jr.normal(key, (*shape, *self.batch_shape, self.noise_dim)))

    @property
    def _traits(self) -> Traits:
        """Properties of the density and of `_images` that methods rely on."""
        return Traits()

    def _origin(self, component: int) -> tuple["AbstractDistribution", int]:
        """Return the law, and its component, from which a component of this law is taken."""
        return self, component

    @property
    def _scalar(self) -> bool:
        """`True` if states have no axis."""
        return False

    def log_prob(self, x: Float[ArrayLike, "*batch d"]) -> Float[Array, "*batch"]:
        """Return the log-density at `x`, whose last axis is the state."""
        return self._log_probs(self._points(x))

    def prob(self, x: Float[ArrayLike, "*batch d"]) -> Float[Array, "*batch"]:
        """Return the density at `x`, whose last axis is the state."""
        return jnp.exp(self.log_prob(x))

    def logpdf(self, x: Float[ArrayLike, "*batch d"]) -> Float[Array, "*batch"]:
        """Return the log-density at `x`, under SciPy's name."""
        return self.log_prob(x)

    def pdf(self, x: Float[ArrayLike, "*batch d"]) -> Float[Array, "*batch"]:
        """Return the density at `x`, under SciPy's name."""
        return self.prob(x)

    def sample(
        self, key: PRNGKeyArray | int, shape: int | tuple[int, ...] = ()
    ) -> Float[Array, "*shape_and_batch d"]:
        """Return independent draws.

        **Arguments:**

        - `key`: a random key, or a seed.
        - `shape`: number of draws, or their leading shape.
        """
        return self._states(self._draw(checked_key(key), checked_shape(shape)))

    def rvs(
        self,
        size: int | tuple[int, ...] | None = None,
        random_state: int | np.random.Generator | None = None,
    ) -> Float[np.ndarray, "*size d"]:
        """Return independent draws as a NumPy array.

        **Arguments:**

        - `size`: leading shape of the draws; one draw by default.
        - `random_state`: a seed or a NumPy generator; by default draws differ from call to call.
        """
        return np.asarray(self.sample(random_key(random_state), () if size is None else size))

    def expect(
        self,
        f: Callable[[Float[Array, " d"]], Array],
        *,
        points: int = POINTS,
        key: PRNGKeyArray | int = 0,
    ) -> Estimate:
        """Return the expectation of a function of the state, `.value` and `.stderr`.

        Derivatives in time, start and parameters are those of the estimate, which is smooth.

        **Arguments:**

        - `f`: a function of one state, of shape `(dim,)`, that returns a number or an array.
        - `points`: number of points. In one dimension, that of two quadrature rules together,
            whose difference is the standard error.
        - `key`: the seed of the quasi-random points.
        """
        given = (lambda x: jnp.asarray(f(x[0]))) if self._scalar else lambda x: jnp.asarray(f(x))
        points_of = self._weighted(points, key)
        values = function_values(given, points_of.x, () if self._scalar else (self.dim,))
        found = points_of.mean(values)
        require_numbers(found.value, points_of, values)
        return found

    def mean(self, **options: Any) -> Float[Array, "*batch d"]:
        """Return the mean; `points` and `key` as in `expect`."""
        points = self._weighted(**checked_options(options))
        return self._states(points.mean(points.x).value)

    def cov(self, **options: Any) -> Float[Array, "*batch d d"]:
        """Return the covariance matrix; `points` and `key` as in `expect`."""
        return self._weighted(**checked_options(options)).moments()[1]

    def var(self, **options: Any) -> Float[Array, "*batch d"]:
        """Return the variances; `points` and `key` as in `expect`."""
        return self._states(jnp.diagonal(self.cov(**options), axis1=-2, axis2=-1))

    def std(self, **options: Any) -> Float[Array, "*batch d"]:
        """Return the standard deviations; `points` and `key` as in `expect`."""
        return jnp.sqrt(self.var(**options))

    def moment(self, order: int, **options: Any) -> Float[Array, "*batch d"]:
        """Return the moment of each component about zero; `points` and `key` as in `expect`.

        **Arguments:**

        - `order`: the exponent, a whole number.
        """
        points = self._weighted(**checked_options(options))
        return self._states(points.mean(points.x ** checked_count("order", order, least=0)).value)

    def stats(self, **options: Any) -> tuple[Float[Array, "*batch d"], Float[Array, "*batch d"]]:
        """Return mean and variance of each component; `points` and `key` as in `expect`."""
        return self.mean(**options), self.var(**options)

    def entropy(self, **options: Any) -> Float[Array, "*batch"]:
        """Return the differential entropy in nats; `points` and `key` as in `expect`."""
        points = self._weighted(**checked_options(options))
        return -points.mean(self._log_probs(points.x)).value

    def kl(self, other: Any, **options: Any) -> Float[Array, "*batch"]:
        """Return the Kullback--Leibler divergence from `other` to this law, in nats.

        **Arguments:**

        - `other`: a law on the same states, with `log_prob`.
        - `points`, `key`: as in `expect`.
        """
        if not callable(getattr(other, "log_prob", None)):
            raise ValueError(
                f"`other` must be a law with a method `log_prob`; got {type(other).__name__}."
            )
        own = getattr(other, "dim", None)
        if own not in (None, self.dim):
            raise ValueError(f"`other` must have {self.dim} components; it has {own}.")
        points = self._weighted(**checked_options(options))
        theirs = other._log_probs if isinstance(other, AbstractDistribution) else other.log_prob
        return points.mean(self._log_probs(points.x) - theirs(points.x)).value

    def cdf(self, x: Float[ArrayLike, "*batch d"]) -> Float[Array, "*batch"]:
        r"""Return the distribution function at `x`.

        In one dimension it is accurate to rounding. In several it is that of each component, of
        the shape of `x`; `cdf_estimate` adds standard errors. SciPy's, of all components together,
        is `expect(lambda y: jnp.all(y <= x))`.
        """
        return self._tails(x)[0]

    def cdf_estimate(self, x: Float[ArrayLike, "*batch d"]) -> Estimate:
        """Return `cdf(x)` and its standard error, `.value` and `.stderr`.

        The error is that of the mean over quasi-random points. Where quadrature is used, it is the
        difference between two rules; for an increasing map of one normal variable it is zero.
        """
        if self._by_map:
            value = ndtr(self._normal(x))
            return Estimate(value, jnp.zeros_like(value))
        return tail_estimates(self, self._points(x))[0]

    def sf(self, x: Float[ArrayLike, "*batch d"]) -> Float[Array, "*batch"]:
        """Return one minus the distribution function; as accurate in the upper tail."""
        return self._tails(x)[1]

    def logcdf(self, x: Float[ArrayLike, "*batch d"]) -> Float[Array, "*batch"]:
        """Return the logarithm of `cdf`."""
        return log_ndtr(self._normal(x)) if self._by_map else jnp.log(self.cdf(x))

    def logsf(self, x: Float[ArrayLike, "*batch d"]) -> Float[Array, "*batch"]:
        """Return the logarithm of `sf`."""
        return log_ndtr(-self._normal(x)) if self._by_map else jnp.log(self.sf(x))

    def ppf(self, q: Float[ArrayLike, "*batch"]) -> Float[Array, "*batch d"]:
        """Return the quantile of each component at the levels `q`, between 0 and 1.

        It is accurate to rounding in one dimension, and the inverse of `cdf` in several.
        """
        return self._states(self._quantile(checked_levels("q", q, self.batch_shape), upper=False))

    def quantile(self, q: Float[ArrayLike, "*batch"]) -> Float[Array, "*batch d"]:
        """Return `ppf(q)`."""
        return self.ppf(q)

    def isf(self, q: Float[ArrayLike, "*batch"]) -> Float[Array, "*batch d"]:
        """Return the state above which the probability is `q`."""
        return self._states(self._quantile(checked_levels("q", q, self.batch_shape), upper=True))

    def median(self) -> Float[Array, "*batch d"]:
        """Return the median of each component."""
        return self.ppf(jnp.full(self.batch_shape, 0.5))

    def interval(
        self, confidence: float = 0.95
    ) -> tuple[Float[Array, "*batch d"], Float[Array, "*batch d"]]:
        """Return the ends of the central interval of each component.

        **Arguments:**

        - `confidence`: its probability.
        """
        tail = (1 - checked_levels("confidence", confidence)) / 2
        tail = jnp.broadcast_to(tail, np.broadcast_shapes(tail.shape, self.batch_shape))
        return self.ppf(tail), self.isf(tail)

    def support(self) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]]:
        """Return the lower and the upper ends of the domain."""
        low, high = np.transpose([part.ends for part in self.domain])
        return low, high

    def marginal(self, components: int | Sequence[int]) -> "AbstractDistribution":
        """Return the law of some components, in the order given.

        Up to two other components are integrated by quadrature, more by quasi-Monte Carlo. The
        result has `standard_error(x)`, the relative standard error of its density.

        **Arguments:**

        - `components`: their indices, counted from zero.
        """
        from .marginal import marginal_of  # whose classes are distributions

        return marginal_of(self, components)

    def conditional(self, given: Mapping[int, ArrayLike]) -> "AbstractDistribution":
        """Return the law of the other components, given the values of some.

        **Arguments:**

        - `given`: maps indices of components to values inside the domain, which broadcast against
            `batch_shape`.
        """
        from .conditional import conditional_of  # whose classes are distributions

        return conditional_of(self, given)

    @property
    def _by_map(self) -> bool:
        return self.dim == 1 and self._traits.monotone

    def _weighted(self, points: int = POINTS, key: Any = 0) -> WeightedPoints:
        """Return weighted points: a quadrature in one dimension, quasi-random ones in several."""
        count = checked_points(points, key)
        if self._by_map or (self.dim == 1 and self._traits.integrable):
            panels = max(8, -(-count // _PER_PANEL))
            return normal_nodes(self, panels) if self._by_map else panel_nodes(self, panels)
        return self._simulated(count, key)

    def _normal(self, x: Float[ArrayLike, "*batch d"]) -> Float[Array, "*batch"]:
        """Return the normal variable whose image is `x`."""
        return normal_of(self, self._points(x)[..., 0])

    def _tails(self, x: Float[ArrayLike, "*batch d"]) -> tuple[Array, Array]:
        if self._by_map:
            z = self._normal(x)
            return ndtr(z), ndtr(-z)
        below, above = tail_estimates(self, self._points(x), error=False)
        return below.value, above.value

    def _quantile(self, q: Float[Array, "*batch"], upper: bool) -> Float[Array, "*batch d"]:
        if self._by_map:
            z = -ndtri(q) if upper else ndtri(q)
            return self._images(z[..., None])
        return jnp.stack([part.quantile(q, upper) for part in components_of(self)], axis=-1)

    def _points(self, x: ArrayLike) -> Float[Array, "*batch d"]:
        """Return checked states with an axis of components."""
        if self._scalar or (self.dim == 1 and np.ndim(x) == 0):
            x = real_numbers("x", x)[..., None]
        return jnp.asarray(checked_point("x", x, self.dim))

    def _states(self, x: Float[Array, "*batch d"]) -> Array:
        """Return states as the caller writes them."""
        return x[..., 0] if self._scalar else x
