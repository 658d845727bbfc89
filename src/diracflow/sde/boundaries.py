r"""Whether a process can reach the ends of its domain: Feller's test.

Near an end, with $\delta$ the distance from it, $b$ the drift away from it and $a$ the variance of
the noise, the end is reached in finite time, with positive probability, if and only if
$$v = \int_0 s'(\delta)\int_\delta \frac{2\,dz}{a(z)s'(z)}\,d\delta,\qquad
  s'(\delta) = \exp\int_\delta\frac{2b}{a}dz,$$
is finite. The other components are held at draws of the starts; parameters and the time of the
start are drawn as well, and taken at the corners of their box. We integrate over the
logarithm of $\delta$, down to a hundred-millionth of the distance of the starts: if the integrand
still falls there, as a power of $\delta$, its integral is finite.
"""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from .conditioning import given
from .laws import AbstractLaw, Product, Uniform
from .sde import SDE

# Draws of the starts, and steps of the integral in each of eight decades.
_DRAWS, _STEPS, _DECADES = 8, 40, 8
# Corners of a box of parameters that are tried, at most, and quantiles of laws without ends.
_CORNERS, _OUTER = 2**10, (0.05, 0.95)
# Powers below this are taken for zero: the noise of a geometric Brownian motion has exactly zero.
_SLOWEST = 1e-3


class BoundaryWarning(UserWarning):
    """A process may reach the end of its domain, where what is learned is not its density."""


def boundaries(
    sde: SDE, starts: AbstractLaw, start_time: float | None, horizon: float
) -> tuple[dict[str, Any], ...]:
    """Feller's test at every finite end of the domain, in plain Python.

    `accessible` says whether the end looks as if it were reached, and `index` is
    $2\\delta b/a$ close to it: with noise like a square root that must not be below 1. Draws of
    `starts` have parameters and the time of the start behind them, where these vary.
    """
    draws = np.asarray(starts.sample(jr.key(0), (_DRAWS,)))
    draws = np.concatenate([draws, _corners(starts, sde.dim)])
    found = []
    for component, part in enumerate(sde.domain):
        for end, inwards in zip(part.ends, (1.0, -1.0), strict=True):
            if np.isfinite(end):
                rows = [
                    _tested((sde, start_time, tau), draws, component, end, inwards)
                    for tau in (0.0, horizon)
                ]
                index, power = max(rows, key=lambda row: row[1])
                found.append(
                    {
                        "component": component,
                        "end": float(end),
                        "index": float(index) if np.isfinite(index) else None,
                        "accessible": bool(power > _SLOWEST),
                    }
                )
    return tuple(found)


def boundary_message(found: tuple[dict[str, Any], ...]) -> str | None:
    """What to say of ends that look accessible; `None` if there are none."""
    bad = [row for row in found if row["accessible"]]
    if not bad:
        return None
    ends = "; ".join(
        f"component {row['component']} at {row['end']:g}, where twice the drift inwards times the "
        f"distance over the variance of the noise tends to {shown(row['index'])}"
        for row in bad
    )
    return (
        "By Feller's test the process can reach the end of its domain: "
        f"{ends} (with noise like a square root it must be at least 1). What happens there the SDE "
        "does not say, and the density learned is that of a process that never gets there: it "
        "cannot be trusted near the end, nor anywhere after times in which paths get there."
    )


def shown(index: float | None) -> str:
    """An index in words."""
    return "no finite number" if index is None else f"{index:.3g}"


def _corners(law: AbstractLaw, dim: int) -> Float[np.ndarray, "corners d+k"]:
    """Corners of the box of what follows a start, with the start in the middle of its law.

    An end is reached for the most extreme parameters first, and draws seldom are. Laws without
    ends are taken between their outer quantiles.
    """
    if not isinstance(law, Product) or law.dim == dim:
        return np.zeros((0, law.dim or dim))
    ends = [(0.0, 1.0) if isinstance(part, Uniform) else _OUTER for part in law.laws[1:]]
    corners = np.array(list(itertools.islice(itertools.product(*ends), _CORNERS)))
    u = np.concatenate([np.full((len(corners), dim), 0.5), corners], axis=1)
    return np.asarray(law.transport(u))


def _tested(
    process: tuple[SDE, float | None, float],
    draws: np.ndarray,
    component: int,
    end: float,
    inwards: float,
) -> tuple[float, float]:
    """The index and the power of the integrand close to an end, for the draw that comes nearest."""
    step = np.log(10) / _STEPS
    logs = np.log(np.median(inwards * (draws[:, component] - end))) - step * np.arange(
        _STEPS * _DECADES + 1
    )
    distance = np.exp(logs)
    points = np.repeat(draws[:, None], len(logs), axis=1)
    points[..., component] = end + inwards * distance
    drift, variance = (np.asarray(a) for a in _coefficients(*process, points, component))
    with np.errstate(all="ignore"):
        index = 2 * inwards * drift * distance / variance
        power = _power(index, np.log(2 * distance**2 / variance), step)
    # Where coefficients are not finite near an end, nothing can be said.
    known = np.isfinite(power) & np.isfinite(index[:, -1])
    if not known.any():
        return np.nan, np.inf
    worst = int(np.argmax(np.where(known, power, -np.inf)))
    return float(index[worst, -1]), float(power[worst])


def _power(index: np.ndarray, log_speed: np.ndarray, step: float) -> np.ndarray:
    r"""The power of $\delta$ with which the integrand of $v$ ends, per unit of $\log\delta$.

    $g = s'M$ grows over a step towards the end by $e^{Rh}g + (2\delta/a)(e^{Rh} - 1)/R$, with $R$
    the index; `log_speed` is $\log(2\delta^2/a)$. Everything is kept in logarithms and times
    $\delta$.
    """
    value, values = np.full(len(index), -np.inf), []
    for k in range(index.shape[1]):
        growth = index[:, k] * step
        mean = np.where(np.abs(growth) < 1e-8, 1.0, np.expm1(-np.abs(growth)) / -np.abs(growth))
        added = log_speed[:, k] + np.log(step * mean) + np.maximum(growth, 0.0)
        value = np.logaddexp(value + growth, added) - step
        values.append(value)
    return -(values[-1] - values[-1 - _STEPS]) / (_STEPS * step)


def _coefficients(
    sde: SDE, start_time: float | None, tau: float, g: np.ndarray, component: int
) -> tuple[Float[Array, "draws n"], Float[Array, "draws n"]]:
    """Drift and variance of a component, a time `tau` after the start."""

    def one(g: Array) -> tuple[Array, Array]:
        member, x, began = given(sde, start_time, g)
        time = began + tau
        return member.drift(time, x)[component], jnp.sum(member.diffusion(time, x)[component] ** 2)

    return jax.jit(jax.vmap(jax.vmap(one)))(jnp.asarray(g))
