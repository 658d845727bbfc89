r"""What a process is given when it begins, and the laws of it.

A start $x_0$, parameters $p$ of the SDE if it has any, and the time $s$ of the start where it
varies, in this order as one vector $g = (x_0, p, s)$. Sources, flows and densities see only $g$.
"""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaincc
from jaxtyping import Array, Bool, Float
from scipy.special import chdtri

from .laws import AbstractLaw, LogNormal, Product, Uniform
from .parameters import Bounds, check_names
from .sde import SDE

# Conditioning vectors beyond all but this share of their law are outside it.
OUTSIDE = 1e-4


class Given(NamedTuple):
    """One equation, one start, one time of the start."""

    sde: SDE  # without open parameters
    start: Float[Array, " d"]
    start_time: Float[Array, ""]


def given(sde: SDE, start_time: float | None, g: Float[Array, " d+k"]) -> Given:
    """What the vector `g` stands for; its last entry is the time where `start_time` is `None`."""
    count = len(sde.params)
    values, rest = g[sde.dim : sde.dim + count], g[sde.dim + count :]
    time = rest[0] if start_time is None else jnp.asarray(start_time, g.dtype)
    return Given(sde.with_values(values) if count else sde, g[: sde.dim], time)


class Scope(eqx.Module):
    """What a density was trained for: laws of starts, of parameters and of start times.

    Within a box (a `Uniform` law) all parameters and times count alike, up to its faces, and beyond
    it none; of other laws those count that are not too far out, as for starts.
    """

    starts: AbstractLaw
    params: tuple[AbstractLaw, ...]
    start_times: AbstractLaw | None
    names: tuple[str, ...] = eqx.field(static=True)
    # Intervals on which parameters and start time live; numbers that are known under `jit`, too.
    _supports: tuple[tuple[float, float], ...] = eqx.field(static=True)

    def __init__(
        self,
        starts: AbstractLaw,
        params: tuple[AbstractLaw, ...] = (),
        start_times: AbstractLaw | None = None,
        names: tuple[str, ...] = (),
    ):
        self.starts, self.params, self.start_times, self.names = starts, params, start_times, names
        self._supports = tuple(map(support, self._tail))

    @property
    def law(self) -> AbstractLaw:
        """The law of the whole vector."""
        return Product(self.starts, *self._tail) if self._tail else self.starts

    @property
    def named(self) -> dict[str, AbstractLaw]:
        """Laws of the parameters by name."""
        return dict(zip(self.names, self.params, strict=True))

    @property
    def bounds(self) -> Bounds:
        """Between which values each parameter lies for sure."""
        ends = zip(self.names, self._supports, strict=False)
        return {name: interval for name, interval in ends if np.any(np.isfinite(interval))}

    @property
    def time_bounds(self) -> tuple[float, float]:
        """Between which times the start lies for sure."""
        return (-np.inf, np.inf) if self.start_times is None else self._supports[-1]

    @property
    def freedom(self) -> int:
        """How many entries a squared distance is the sum of."""
        return (self.starts.dim or 1) + sum(not isinstance(law, Uniform) for law in self._tail)

    def squared_distance(self, g: Float[Array, "*batch d+k"]) -> Float[Array, "*batch"]:
        """Squared distance from the centre in standard deviations; infinite beyond a box."""
        dim = self.starts.dim or 1
        squared = self.starts.squared_distance(g[..., :dim])
        for index, (law, (low, high)) in enumerate(zip(self._tail, self._supports, strict=True)):
            value = g[..., dim + index : dim + index + 1]
            if isinstance(law, Uniform):
                inside = (value >= low) & (value <= high)
                squared = jnp.where(inside[..., 0], squared, jnp.inf)
            else:
                squared = squared + law.squared_distance(value)
        return squared

    def coverage(self, g: Float[Array, "*batch d+k"]) -> Float[Array, "*batch"]:
        """Share of the laws that lies further out: 1 at the centre, 0 outside."""
        half = self.squared_distance(g) / 2
        return gammaincc(self.freedom / 2, jnp.minimum(half, jnp.finfo(half.dtype).max))

    def outside(self, g: Float[Array, "*batch d+k"], share: float) -> Bool[Array, "*batch"]:
        """Whether less than a share of the laws lies further out."""
        return self.squared_distance(g) > furthest(self.freedom, share)

    def describe(self) -> dict[str, Any]:
        """Laws of parameters and start times in plain Python."""
        times = None if self.start_times is None else self.start_times.describe()
        laws = [{"name": name, **law.describe()} for name, law in self.named.items()]
        return {"params": laws, "start_times": times}

    @property
    def _tail(self) -> tuple[AbstractLaw, ...]:
        return self.params if self.start_times is None else (*self.params, self.start_times)


@functools.cache
def furthest(freedom: int, share: float) -> float:
    """Squared distance of so many entries beyond which no more than a share of them lies."""
    return float(chdtri(freedom, share))


def support(law: AbstractLaw) -> tuple[float, float]:
    """The interval on which a law of one number lives."""
    if isinstance(law, Uniform):
        return float(law.low[0]), float(law.high[0])
    return (0.0, np.inf) if isinstance(law, LogNormal) else (-np.inf, np.inf)


def scope(
    sde: SDE,
    starts: AbstractLaw,
    params: Mapping[str, AbstractLaw] | None,
    start_times: AbstractLaw | None,
) -> Scope:
    """Check laws for an SDE, and put them in its order."""
    laws = {} if params is None else params
    check_names(sde.params, laws, "SDE")
    ordered = tuple(_one_number(name, laws[name]) for name in sde.params)
    times = None if start_times is None else _one_number("start_time", start_times)
    return Scope(starts.expand(sde.dim), ordered, times, sde.params)


def _one_number(name: str, law: object) -> AbstractLaw:
    if not isinstance(law, AbstractLaw) or law.dim not in (None, 1):
        raise ValueError(
            f"`{name}` must have a law of one number, such as `diracflow.Uniform(1, 4)`; "
            f"got {law!r}."
        )
    return law.expand(1)
