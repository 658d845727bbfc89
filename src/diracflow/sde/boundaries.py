r"""Feller's test: detects boundaries of the domain that the process can reach.

Let $\delta$ be the distance from a boundary, $b$ the drift away from it and $a$ the variance of the
noise. The process reaches the boundary in finite time with positive probability if and only if
$$v = \int_0 s'(\delta)\int_\delta \frac{2\,dz}{a(z)s'(z)}\,d\delta,\qquad
  s'(\delta) = \exp\int_\delta\frac{2b}{a}dz,$$
is finite. The other components are fixed at draws of the start law. Parameters and start time are
drawn as well, and also set to the corners of their box. We integrate over $\log\delta$, down to
$10^{-8}$ times the distance of the starts. If the integrand still decays there as a power of
$\delta$, the integral is finite.
"""

import itertools
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Float

from .fingerprint import coefficients
from .laws import AbstractLaw, Product, Uniform
from .sde import SDE

# Draws of the start law, and steps of the integral in each of eight decades.
_DRAWS, _STEPS, _DECADES = 8, 40, 8
# Largest number of corners of the parameter box, and outer quantiles of unbounded laws.
_CORNERS, _OUTER = 2**10, (0.05, 0.95)
# Exponents below this count as zero, the exact value for a geometric Brownian motion.
_SLOWEST = 1e-3


class BoundaryWarning(UserWarning):
    """The process may reach a boundary of its domain, so the learned density may be wrong."""


def boundaries(
    sde: SDE, starts: AbstractLaw, start_time: float | None, horizon: float
) -> tuple[dict[str, Any], ...]:
    """Apply Feller's test to every finite boundary of the domain, at the start and the horizon.

    **Returns:**

    A dictionary for each boundary. `accessible` is `True` if the process appears to reach it, and
    `index` is the limit of $2\\delta b/a$, which must be at least 1 for square-root noise.
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
    """Return a warning about accessible boundaries, or `None` if there are none."""
    bad = [row for row in found if row["accessible"]]
    if not bad:
        return None
    ends = "; ".join(
        f"component {row['component']} at {row['end']:g}, where twice the inward drift times the "
        f"distance, divided by the variance of the noise, tends to {shown(row['index'])}"
        for row in bad
    )
    return (
        "By Feller's test the process can reach a boundary of its domain: "
        f"{ends} (for square-root noise this must be at least 1). The SDE does not define what "
        "happens there, and the learned density is that of a process that never reaches the "
        "boundary. It cannot be trusted near the boundary, nor after paths have reached it."
    )


def shown(index: float | None) -> str:
    """Return an index as text."""
    return "no finite number" if index is None else f"{index:.3g}"


def _corners(law: AbstractLaw, dim: int) -> Float[np.ndarray, "corners d+k"]:
    """Return the corners of the box of parameters and start time, at the median of the starts.

    Extreme parameters reach a boundary first, and draws are seldom extreme. Unbounded laws are cut
    off at their outer quantiles.
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
    """Return the index, and the largest exponent of the integrand near a boundary."""
    step = np.log(10) / _STEPS
    logs = np.log(np.median(inwards * (draws[:, component] - end))) - step * np.arange(
        _STEPS * _DECADES + 1
    )
    distance = np.exp(logs)
    points = np.repeat(draws[:, None], len(logs), axis=1)
    points[..., component] = end + inwards * distance
    sde, start_time, tau = process
    table = jnp.asarray(points.reshape(-1, points.shape[-1]))
    drifts, noise = coefficients(sde, start_time, jnp.full(len(table), tau), table)
    drift, variance = drifts[:, component], np.sum(noise[:, component] ** 2, axis=1)
    drift, variance = drift.reshape(points.shape[:2]), variance.reshape(points.shape[:2])
    with np.errstate(all="ignore"):
        index = 2 * inwards * drift * distance / variance
        power = _power(index, np.log(2 * distance**2 / variance), step)
    # The test is inconclusive if coefficients are not finite near the boundary.
    known = np.isfinite(power) & np.isfinite(index[:, -1])
    if not known.any():
        return np.nan, np.inf
    worst = int(np.argmax(np.where(known, power, -np.inf)))
    return float(index[worst, -1]), float(power[worst])


def _power(index: np.ndarray, log_speed: np.ndarray, step: float) -> np.ndarray:
    r"""Return the exponent of $\delta$ with which the integrand of $v$ decays near the boundary.

    Over a step towards the boundary $g = s'M$ becomes $e^{Rh}g + (2\delta/a)(e^{Rh} - 1)/R$, where
    $R$ is the index. `log_speed` is $\log(2\delta^2/a)$. The recursion is for $\log(\delta g)$.
    """
    growth = index * step
    size = np.abs(growth)
    mean = np.where(size < 1e-8, 1.0, np.expm1(-size) / -np.maximum(size, 1e-8))
    added = log_speed + np.log(step * mean) + np.maximum(growth, 0.0) - step
    # All terms relative to the factors by which they grow until the last.
    factors = np.cumsum(growth - step, axis=1)
    values = factors + np.logaddexp.accumulate(added - factors, axis=1)
    return -(values[:, -1] - values[:, -1 - _STEPS]) / (_STEPS * step)
