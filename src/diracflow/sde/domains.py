r"""Domains of the components of a state, and their maps to the real line.

A smooth increasing map $\varphi$ onto the whole line ensures that every sample lies inside the
domain. Far inside, the map should make the noise constant, $\varphi' = 1/\sigma$ (Lamperti), since
the source is a Gaussian. Near a boundary it must behave like a logarithm to reach infinity. The
maps here are therefore compositions of a power of the distance from the boundary, with the exponent
of the noise, and the inverse of the softplus function, which is linear inside and logarithmic at
the boundary.
"""

import abc
import dataclasses
import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float

from .argument_checks import checked_number

# The softplus function bends where the power of the distance is this factor smaller than at the
# centre of the starts.
_SHARPNESS = 4.0


class AbstractDomain(eqx.Module):
    """An open interval with a smooth increasing map onto the real line.

    Maps act elementwise on arrays of any shape. Points must lie inside the domain.
    """

    @property
    @abc.abstractmethod
    def ends(self) -> tuple[float, float]:
        """Lower and upper boundary."""

    @abc.abstractmethod
    def to_real(self, x: Float[Array, "*n"]) -> Float[Array, "*n"]:
        r"""Return $\varphi(x)$."""

    @abc.abstractmethod
    def _inverse(self, y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """Return the inverse of `to_real`, up to rounding."""

    @abc.abstractmethod
    def fitted(self, x: np.ndarray, noise: np.ndarray) -> "AbstractDomain":
        """Return the domain with a map fitted to states `x` and the size of the noise there."""

    def describe(self) -> dict:
        """Return the name and the numbers in plain Python."""
        numbers = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {"domain": type(self).__name__, **numbers}

    def from_real(self, y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """Return the inverse of `to_real`, finite and strictly inside even after rounding."""
        low, high = _innermost(*self.ends, y.dtype)
        return jnp.clip(self._inverse(y), low, high)

    def log_slope(self, x: Float[Array, "*n"]) -> Float[Array, "*n"]:
        r"""Return $\log\varphi'(x)$."""
        return jnp.log(jax.jvp(self.to_real, (x,), (jnp.ones_like(x),))[1])

    def contains(self, x: Float[ArrayLike, "*n"]) -> Bool[Array, "*n"]:
        """Return `True` for the points that lie inside."""
        low, high = self.ends
        return (jnp.asarray(x) > low) & (jnp.asarray(x) < high)

    @property
    @abc.abstractmethod
    def centre(self) -> float:
        """A point inside."""

    def __str__(self) -> str:
        return f"({self.ends[0]:g}, {self.ends[1]:g})"


class Real(AbstractDomain):
    """The whole real line."""

    ends = (-np.inf, np.inf)
    centre = 0.0

    def to_real(self, x: Array) -> Array:
        return x

    def _inverse(self, y: Array) -> Array:
        return y

    def from_real(self, y: Array) -> Array:
        return y

    def log_slope(self, x: Array) -> Array:
        return jnp.zeros_like(x)

    def contains(self, x: ArrayLike) -> Array:
        return jnp.ones_like(x, bool)

    def fitted(self, x: np.ndarray, noise: np.ndarray) -> "Real":
        return self


class Positive(AbstractDomain):
    r"""The positive half line.

    **Arguments:**

    - `power`: the exponent $p$ of the map $\varphi(x) = \log(e^r - 1)$ with $r = 4(x/c)^p$. It is
        nearly a power law above $c/4^{1/p}$ and $p\log x$ below. For $p < 0$ both signs change, and
        for $p = 0$ the map is $\log(x/c)$. By default `learn` fits $1-p$ to the exponent with which
        the noise grows over the starts: $p = 0$ for a geometric Brownian motion, $1/2$ for CIR.
    - `scale`: $c$; by default the geometric mean of the starts, or 1 for $p = 0$.

    >>> import diracflow as df
    >>> sde = df.SDE(
    ...     drift=lambda t, x: 3.0 * (0.3 - x),
    ...     diffusion=lambda t, x: 0.2 * x[:, None] ** 0.5,
    ...     dim=1,
    ...     domain=df.Positive(),
    ... )
    """

    ends = (0.0, np.inf)
    power: float | None = eqx.field(static=True)
    scale: float | None = eqx.field(static=True)

    def __init__(self, power: float | None = None, scale: float | None = None):
        self.power = None if power is None else checked_number("power", power)
        self.scale = None if scale is None else checked_number("scale", scale)
        if self.scale is not None and self.scale <= 0:
            raise ValueError(f"`scale` must be positive; got {scale}.")

    @property
    def centre(self) -> float:
        return self.scale or 1.0

    def to_real(self, x: Array) -> Array:
        power, scale = self.power or 0.0, self.scale or 1.0
        if power == 0:
            return jnp.log(x / scale)
        # NumPy's sign would promote float32 to float64.
        sign = math.copysign(1.0, power)
        return sign * softplus_inverse(_SHARPNESS * (x / scale) ** power)

    def _inverse(self, y: Array) -> Array:
        power, scale = self.power or 0.0, self.scale or 1.0
        if power == 0:
            return scale * jnp.exp(y)
        r = jax.nn.softplus(math.copysign(1.0, power) * y) / _SHARPNESS
        return scale * r ** (1 / power)

    def fitted(self, x: np.ndarray, noise: np.ndarray) -> "Positive":
        power = self.power
        if power is None:
            log_x, log_noise = np.log(x), np.log(noise)
            centred = log_x - np.mean(log_x)
            slope = float(centred @ (log_noise - np.mean(log_noise)) / (centred @ centred))
            # The nearest multiple of 1/4 in [-1, 1], because exponents of models are simple.
            power = float(np.clip(np.round(4 * (1 - slope)) / 4, -1, 1))
        # For the logarithm a scale is only a shift.
        middle = 1.0 if power == 0 else float(np.exp(np.mean(np.log(x))))
        return Positive(power, middle if self.scale is None else self.scale)


class Interval(AbstractDomain):
    r"""A bounded open interval.

    **Arguments:**

    - `low`, `high`: the boundaries.
    - `arcsine`: with $u = (x - a)/(b - a)$, the map is $\log(e^{4r} - 1) - \log(e^{4(1-r)} - 1)$,
        $r = \tfrac2\pi\arcsin\sqrt u$ if `True`, and $\log u - \log(1 - u)$ if `False`. By default
        `learn` chooses the map for which the noise varies less over the starts: the arcsine for a
        Jacobi process, whose noise is $\sqrt{u(1 - u)}$.
    """

    low: float = eqx.field(static=True)
    high: float = eqx.field(static=True)
    arcsine: bool | None = eqx.field(static=True)

    def __init__(self, low: float, high: float, arcsine: bool | None = None):
        self.low, self.high = checked_number("low", low), checked_number("high", high)
        if not self.low < self.high:
            raise ValueError(f"`Interval` needs `low < high`; got {low} and {high}.")
        if arcsine is not None and not isinstance(arcsine, bool):
            raise ValueError(f"`arcsine` must be True, False or None; got {arcsine!r}.")
        self.arcsine = arcsine

    @property
    def ends(self) -> tuple[float, float]:
        return self.low, self.high

    @property
    def centre(self) -> float:
        return (self.low + self.high) / 2

    def to_real(self, x: Array) -> Array:
        below, above = (x - self.low) / self._width, (self.high - x) / self._width
        if not self.arcsine:
            return jnp.log(below) - jnp.log(above)
        angles = (jnp.arctan(jnp.sqrt(ratio)) for ratio in (below / above, above / below))
        r, rest = (softplus_inverse(_SHARPNESS * 2 / np.pi * angle) for angle in angles)
        return r - rest

    def _inverse(self, y: Array) -> Array:
        # Each half is computed from the nearer boundary, because of rounding.
        lower = y <= 0
        y = jnp.where(lower, y, -y)
        if self.arcsine:
            share = jnp.sin(np.pi / 2 * _between_softplus(y)) ** 2
        else:
            share = jax.nn.sigmoid(y)
        return jnp.where(lower, self.low + self._width * share, self.high - self._width * share)

    def fitted(self, x: np.ndarray, noise: np.ndarray) -> "Interval":
        if self.arcsine is not None:
            return self
        share = (x - self.low) / self._width
        square_root = np.log(share * (1 - share)) / 2
        spread = [np.std(np.log(noise) - k * square_root) for k in (1, 2)]
        return Interval(self.low, self.high, bool(spread[0] < spread[1]))

    @property
    def _width(self) -> float:
        return self.high - self.low


def each(maps: Sequence[AbstractDomain], method: str, x: Float[Array, "*n d"]) -> Array:
    """Apply one method of the domain of each component, such as `to_real` or `log_slope`."""
    if maps and all(part.describe() == maps[0].describe() for part in maps):
        return getattr(maps[0], method)(x)
    columns = [getattr(part, method)(x[..., i]) for i, part in enumerate(maps)]
    return jnp.stack(columns, axis=-1) if columns else x


def domain_from(description: dict) -> AbstractDomain:
    """Return the domain from the result of `describe`."""
    numbers = dict(description)
    name = numbers.pop("domain", None)
    makers = {"Real": Real, "Positive": Positive, "Interval": Interval}
    if name not in makers:
        raise ValueError(f"Unknown domain {name!r}; expected one of {sorted(makers)}.")
    return makers[name](**numbers)


def softplus_inverse(r: Float[Array, "*n"]) -> Float[Array, "*n"]:
    r"""Return $\log(e^r - 1)$ for positive $r$."""
    return r + jnp.log(-jnp.expm1(-r))


def _between_softplus(y: Float[Array, "*n"]) -> Float[Array, "*n"]:
    r"""Return the $r$ in (0, 1/2] with $\log(e^{kr} - 1) - \log(e^{k(1-r)} - 1) = y \le 0$.

    $e^{kr}$ solves a quadratic equation. We compute its root minus one without cancellation.
    """
    w, top = jnp.exp(y), math.exp(_SHARPNESS)
    root = jnp.sqrt((1 - w) ** 2 + 4 * w * top)
    return jnp.log1p(2 * w * (top - 1) / (root + 1 + w)) / _SHARPNESS


def domains_of(domain: object, dim: int) -> tuple[AbstractDomain, ...]:
    """Return a tuple of `dim` domains, from one domain for all components or a sequence."""
    if isinstance(domain, AbstractDomain):
        return (domain,) * dim
    if not isinstance(domain, tuple | list) or not all(
        isinstance(part, AbstractDomain) for part in domain
    ):
        raise ValueError(
            "`domain` must be `diracflow.Real()`, `Positive()` or `Interval(a, b)`, or a tuple of "
            f"these, one for each component; got {domain!r}."
        )
    if len(domain) != dim:
        raise ValueError(f"`domain` has {len(domain)} components; the SDE has {dim}.")
    return tuple(domain)


def require_inside(
    domain: tuple[AbstractDomain, ...], x0: Float[Array, "*batch d"], name: str = "x0"
) -> None:
    """Raise if one of the concrete states `x0` lies outside the domain."""
    if all(isinstance(part, Real) for part in domain):
        return
    # NumPy, because under `jit` JAX traces comparisons even of concrete values.
    values, (low, high) = np.asarray(x0), np.transpose([part.ends for part in domain])
    inside = np.all((values > low) & (values < high), axis=-1)
    if not np.all(inside):
        raise ValueError(
            f"`{name}` must lie inside the domain {' x '.join(map(str, domain))}; got "
            f"{values[~inside][0].tolist()}."
        )


def _innermost(low: float, high: float, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Return the smallest and largest normal numbers of a type that lie inside."""
    number = np.dtype(dtype).type
    tiny, largest = np.finfo(dtype).tiny, np.finfo(dtype).max
    first, last = (
        np.nextafter(number(end), number(inwards))
        for end, inwards in ((low, np.inf), (high, -np.inf))
    )
    # Rounding to the type may have moved the boundary inwards.
    first = first if first > low else np.nextafter(first, number(np.inf))
    last = last if last < high else np.nextafter(last, number(-np.inf))
    # Processors flush subnormal numbers to zero.
    first = tiny if 0 <= low < tiny else first
    last = -tiny if -tiny < high <= 0 else last
    return np.maximum(first, -largest), np.minimum(last, largest)
