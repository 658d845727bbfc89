r"""Probability laws of the start point and of parameters.

A law is defined by its transport from the unit cube, which maps quasi-random points to quasi-random
draws. Parameters of laws may be scalars. `expand` repeats them over the components once the
dimension of the problem is known.
"""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import gammaincc, ndtri
from jax.scipy.stats import norm
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from .argument_checks import checked_count, checked_key, checked_point, checked_shape, real_numbers
from .delegation import delegated
from .domains import domain_from

Parameter = np.ndarray


class AbstractLaw(eqx.Module):
    """A probability law on states."""

    @property
    @abc.abstractmethod
    def dim(self) -> int | None:
        """Length of a draw; `None` while all parameters are scalars."""

    @abc.abstractmethod
    def expand(self, dim: int) -> "AbstractLaw":
        """Return the same law with scalar parameters repeated for `dim` components."""

    @abc.abstractmethod
    def from_uniform(self, u: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return the image of a point of the unit cube."""

    @abc.abstractmethod
    def to_normal(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return the standard normal point that is mapped to `x`; infinite outside the support.

        `from_uniform(ndtr(to_normal(x)))` is `x`.
        """

    @abc.abstractmethod
    def _log_prob(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """Return the log-density at one point."""

    @abc.abstractmethod
    def describe(self) -> dict:
        """Return the name and the parameters in plain Python, as `law_from` takes them."""

    def log_prob(self, x: Float[ArrayLike, "*batch d"]) -> Float[Array, "*batch"]:
        """Return the log-density at `x`, whose last axis is the state."""
        return jnp.vectorize(self._log_prob, signature="(d)->()")(self._points(x))

    def coverage(self, x: Float[ArrayLike, "*batch d"]) -> Float[Array, "*batch"]:
        """Return the share of the law lying further out than `x`: 1 at the centre, 0 outside."""
        x = self._points(x)
        half = self.squared_distance(x) / 2
        return gammaincc(x.shape[-1] / 2, jnp.minimum(half, jnp.finfo(x.dtype).max))

    @eqx.filter_jit
    def squared_distance(self, x: Float[Array, "*batch d"]) -> Float[Array, "*batch"]:
        """Return the squared norm of `to_normal(x)`, whose last axis is the state."""
        z = jnp.vectorize(self.to_normal, signature="(d)->(d)")(x)
        return jnp.sum(z**2, axis=-1)

    def sample(
        self, key: PRNGKeyArray, shape: int | tuple[int, ...] = ()
    ) -> Float[Array, "*shape d"]:
        """Return independent draws, of shape `shape + (dim,)`.

        **Arguments:**

        - `key`: random key.
        - `shape`: leading shape of the result.
        """
        sizes = (*checked_shape(shape), self.dim or 1)
        u = jr.uniform(checked_key(key), sizes, minval=jnp.finfo(jnp.result_type(float)).tiny)
        return self.transport(u)

    @eqx.filter_jit
    def transport(self, u: Float[ArrayLike, "*batch d"]) -> Float[Array, "*batch d"]:
        """Return the images of points of the unit cube; the last axis is the state."""
        return jnp.vectorize(self.from_uniform, signature="(d)->(d)")(jnp.asarray(u))

    def _points(self, x: ArrayLike) -> Float[Array, "*batch d"]:
        """Return checked states; any length of the last axis if all parameters are scalars."""
        dim = self.dim
        if dim is None:
            shape = np.shape(real_numbers("x", x))
            dim = shape[-1] if shape else 1
        return jnp.asarray(checked_point("x", x, dim))


class Normal(AbstractLaw):
    """A normal law.

    **Arguments:**

    - `mean`: a scalar or a vector.
    - `std`: standard deviations, a scalar or a vector; 1 by default.
    - `covariance`: a matrix, instead of `std`.

    >>> import diracflow as df
    >>> df.Normal([0.0, 1.0], covariance=[[2.0, 0.5], [0.5, 1.0]]).dim
    2
    """

    mean: Parameter
    factor: Parameter  # standard deviations, or the lower Cholesky factor of the covariance

    def __init__(
        self,
        mean: ArrayLike = 0.0,
        std: ArrayLike | None = None,
        *,
        covariance: ArrayLike | None = None,
    ):
        if std is not None and covariance is not None:
            raise ValueError("`Normal` takes `std` or `covariance`; got both.")
        self.mean = _vector("mean", mean)
        if covariance is not None:
            self.factor = _cholesky(covariance)
        else:
            self.factor = _vector("std", 1.0 if std is None else std)
            _require(self.factor > 0, f"`std` must be positive; got {std}.")
        spread = "std" if covariance is None else "covariance"
        _same_length(**{"mean": self.mean, spread: self.factor})

    @property
    def dim(self) -> int | None:
        return _common_length(self.mean, self.factor)

    def expand(self, dim: int) -> "Normal":
        mean = _repeat(self, self.mean, dim)
        if self.factor.ndim == 2:
            _repeat(self, self.factor[0], dim)
            return Normal(mean, covariance=self.factor @ self.factor.T)
        return Normal(mean, _repeat(self, self.factor, dim))

    def from_uniform(self, u: Float[Array, " d"]) -> Float[Array, " d"]:
        noise = ndtri(u)
        spread = self.factor @ noise if self.factor.ndim == 2 else self.factor * noise
        return jnp.asarray(self.mean, u.dtype) + spread

    def to_normal(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        centred = x - jnp.asarray(self.mean, x.dtype)
        if self.factor.ndim < 2:
            return centred / self.factor
        return solve_triangular(self.factor, centred, lower=True)

    def _log_prob(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        scales = jnp.diag(self.factor) if self.factor.ndim == 2 else self.factor
        return jnp.sum(norm.logpdf(self.to_normal(x)) - jnp.log(scales))

    def describe(self) -> dict:
        spread = (
            {"covariance": (self.factor @ self.factor.T).tolist()}
            if self.factor.ndim == 2
            else {"std": self.factor.tolist()}
        )
        return {"law": "Normal", "mean": self.mean.tolist(), **spread}


class Uniform(AbstractLaw):
    """The uniform law on a box.

    **Arguments:**

    - `low`, `high`: the corners, scalars or vectors.
    """

    low: Parameter
    high: Parameter

    def __init__(self, low: ArrayLike = 0.0, high: ArrayLike = 1.0):
        self.low, self.high = _vector("low", low), _vector("high", high)
        _same_length(low=self.low, high=self.high)
        _require(self.low < self.high, f"`Uniform` needs `low < high`; got {low} and {high}.")

    @property
    def dim(self) -> int | None:
        return _common_length(self.low, self.high)

    def expand(self, dim: int) -> "Uniform":
        return Uniform(_repeat(self, self.low, dim), _repeat(self, self.high, dim))

    def from_uniform(self, u: Float[Array, " d"]) -> Float[Array, " d"]:
        return self.low + (self.high - self.low) * u

    def to_normal(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        u = (x - self.low) / (self.high - self.low)
        return jnp.where((u > 0) & (u < 1), ndtri(jnp.clip(u, 0, 1)), jnp.inf)

    def _log_prob(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        inside = jnp.all((x >= self.low) & (x <= self.high))
        volume = jnp.sum(jnp.log((self.high - self.low) * jnp.ones_like(x)))
        return jnp.where(inside, -volume, -jnp.inf)

    def describe(self) -> dict:
        return {"law": "Uniform", "low": self.low.tolist(), "high": self.high.tolist()}


class LogNormal(AbstractLaw):
    """The law of the exponential of independent normal variables.

    **Arguments:**

    - `mean`, `std`: mean and standard deviation of the logarithm, scalars or vectors.
    """

    log: Normal

    def __init__(self, mean: ArrayLike = 0.0, std: ArrayLike = 1.0):
        if std is None:
            raise ValueError("`std` must be positive; got None.")
        self.log = Normal(mean, std)

    dim = delegated("log.dim")

    def expand(self, dim: int) -> "LogNormal":
        log = self.log.expand(dim)
        return LogNormal(log.mean, log.factor)

    def from_uniform(self, u: Float[Array, " d"]) -> Float[Array, " d"]:
        return jnp.exp(self.log.from_uniform(u))

    def to_normal(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        log_x = jnp.log(jnp.where(x > 0, x, 1.0))
        return jnp.where(x > 0, self.log.to_normal(log_x), jnp.inf)

    def _log_prob(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        log_x = jnp.log(jnp.where(x > 0, x, 1.0))
        return jnp.where(jnp.all(x > 0), self.log._log_prob(log_x) - jnp.sum(log_x), -jnp.inf)

    def describe(self) -> dict:
        return {**self.log.describe(), "law": "LogNormal"}


class Product(AbstractLaw):
    """The law of independent blocks of components.

    **Arguments:**

    - `laws`: the laws of the blocks; a law with scalar parameters has one component.
    """

    laws: tuple[AbstractLaw, ...]

    def __init__(self, *laws: AbstractLaw):
        if not laws or not all(isinstance(law, AbstractLaw) for law in laws):
            raise ValueError("`Product` takes one or more `diracflow` laws.")
        self.laws = tuple(law.expand(law.dim or 1) for law in laws)

    @property
    def dim(self) -> int:
        return sum(law.dim or 1 for law in self.laws)

    def expand(self, dim: int) -> "Product":
        if dim != self.dim:
            raise ValueError(f"This `Product` has {self.dim} components; the problem has {dim}.")
        return self

    def from_uniform(self, u: Float[Array, " d"]) -> Float[Array, " d"]:
        return jnp.concatenate(self._each("from_uniform", u))

    def to_normal(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return jnp.concatenate(self._each("to_normal", x))

    def _log_prob(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.sum(jnp.stack(self._each("_log_prob", x)))

    def describe(self) -> dict:
        return {"law": "Product", "laws": [law.describe() for law in self.laws]}

    def _each(self, method: str, x: Float[Array, " d"]) -> list[Array]:
        """Return the results of a method of all laws, each for its block of `x`."""
        parts = jnp.split(x, np.cumsum([law.dim or 1 for law in self.laws])[:-1].tolist())
        return [getattr(law, method)(part) for law, part in zip(self.laws, parts, strict=True)]


def law_from(description: dict) -> AbstractLaw:
    """Return the law from the result of `describe`."""
    from .chart import CoordinateLaw  # which imports this module, as does `mixture`
    from .mixture import Mixture

    makers: dict[str, Callable[..., AbstractLaw]] = {
        **{"Normal": Normal, "Uniform": Uniform, "LogNormal": LogNormal},
        "Product": lambda laws: Product(*map(law_from, laws)),
        "Mixture": lambda laws, weights: Mixture([*map(law_from, laws)], weights),
        "Coordinates": lambda coordinates, maps: CoordinateLaw(
            law_from(coordinates), tuple(map(domain_from, maps))
        ),
    }
    parameters = dict(description)
    name = parameters.pop("law", None)
    if name not in makers:
        raise ValueError(f"Unknown law {name!r}; expected one of {sorted(makers)}.")
    return makers[name](**parameters)


def _vector(name: str, value: ArrayLike) -> Parameter:
    array = real_array(name, value)
    if array.ndim > 1 or array.size == 0:
        raise ValueError(f"`{name}` must be a scalar or a vector; got shape {array.shape}.")
    _require(np.isfinite(array), f"`{name}` must be finite; got {value}.")
    return array


def real_array(name: str, value: Any) -> np.ndarray:
    """Return an array of float64, or raise an error."""
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"`{name}` must hold real numbers; got {value!r}.") from None


def _cholesky(covariance: ArrayLike) -> Parameter:
    matrix = real_array("covariance", covariance)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"`covariance` must be a square matrix; got shape {matrix.shape}.")
    _require(np.isfinite(matrix), "`covariance` must be finite.")
    _require(np.isclose(matrix, matrix.T), "`covariance` must be symmetric.")
    smallest = np.linalg.eigvalsh(matrix)[0]
    if smallest <= 0:
        raise ValueError(
            f"`covariance` must be positive definite; its smallest eigenvalue is {smallest:.3g}."
        )
    return np.linalg.cholesky(matrix)


def _require(condition: np.ndarray, message: str) -> None:
    if not np.all(condition):
        raise ValueError(message)


def _same_length(**parameters: Parameter) -> None:
    lengths = {name: len(p) for name, p in parameters.items() if p.ndim}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"Parameters must have the same length; got {lengths}.")


def _common_length(*parameters: Parameter) -> int | None:
    return next((len(p) for p in parameters if p.ndim), None)


def _repeat(law: AbstractLaw, parameter: Parameter, dim: int) -> Parameter:
    checked_count("dim", dim)
    if parameter.ndim and len(parameter) != dim:
        raise ValueError(
            f"The law {type(law).__name__} has {len(parameter)} components; the problem has {dim}."
        )
    return np.broadcast_to(parameter, (dim,))
