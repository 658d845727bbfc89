r"""Mean and covariance of the ensemble of all paths, by Gaussian moment closure.

A Gaussian started from the moments of the start law follows moment closure,
$m_e' = E[b]$, $C_e' = AC_e + C_eA^\top + E[\Sigma]$ with $A = E[\nabla b]$ under $N(m_e, C_e)$.
The quantities that sources need are computed once and stored as splines in the clock
$c = \sqrt\tau$.

If parameters of the SDE or the start time vary, expectations are also over their laws.
"""

from collections.abc import Callable, Hashable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.interpolate import CubicSpline
from scipy.linalg import expm

from ..sde.conditioning import initial_condition
from ..sde.sde import SDE

# Intervals of the splines. With rates of 20 over a horizon of 10 the forcing that remains for the
# source of a linear SDE is then 1e-7 nats per unit of clock.
_KNOTS = 2048
# Expansion rates are reduced by this multiple of the spread of the drift Jacobian.
_SPREADS = 3.0
# The ensemble has exploded if its width or displacement exceeds this multiple of the width of the
# start law and the noise over the horizon. Larger values would spoil the splines elsewhere.
_VAST = 1e12
# Ensembles computed last, by their arguments: a plan and the training after it need the same.
_RECENT: dict[Hashable, "Ensemble"] = {}
_KEPT = 16
# Norm of an exponent above which a step is halved, because exponentials of larger ones overflow.
_LONG = 30.0
# Norm of an exponent for which the series of a source converges; see `doublings`.
_SHORT, _LEAST_DOUBLINGS, _MOST_DOUBLINGS = 0.19, 7, 40


class Spline(eqx.Module):
    """A twice continuously differentiable matrix-valued function of the clock."""

    knots: Float[np.ndarray, " k+1"]
    coefficients: Float[np.ndarray, "4 k *shape"]

    def __init__(self, knots: np.ndarray, values: np.ndarray):
        self.knots, self.coefficients = knots, CubicSpline(knots, values).c

    def __call__(self, clock: Float[Array, ""]) -> Float[Array, "*shape"]:
        pieces = len(self.knots) - 1
        width = self.knots[-1] / pieces
        piece = jnp.clip(jnp.floor(clock / width).astype(int), 0, pieces - 1)
        u = clock - jnp.asarray(self.knots, clock.dtype)[piece]
        c = jnp.asarray(self.coefficients, clock.dtype)[:, piece]
        return ((c[0] * u + c[1]) * u + c[2]) * u + c[3]


class Ensemble(eqx.Module):
    r"""Moments of the ensemble of paths, as functions of the clock.

    - `drift_jacobian`: $A(\tau)$;
    - `widening`: the lower triangular $M$ for which $cM\Sigma_0M^\top c$ solves
      $C' = AC + CA^\top + E[\Sigma]$ from $C = 0$, the spread of paths from one point;
    - `memory`: the factor by which a small volume contracts, squared and per dimension; at most 1;
    - `covariance`: $\Sigma_0 = E[\Sigma]$ under the start law;
    - `nodes`: cubature nodes of the start law if parameters or start times vary; otherwise empty;
    - `bending`: the norm of the drift Jacobian, integrated over time; it measures how strongly the
      drift deforms the ensemble;
    - `turning`: the spread of the drift Jacobian over states, integrated over time; zero for a
      linear drift;
    - `stiffness`: the largest norm of the drift Jacobian, times the horizon.
    """

    drift_jacobian: Spline
    widening: Spline
    memory: Spline
    covariance: Float[np.ndarray, "d d"]
    nodes: Float[np.ndarray, "n d"]
    bending: float = eqx.field(static=True)
    turning: float = eqx.field(static=True)
    stiffness: float = eqx.field(static=True, default=0.0)


def doublings(stiffness: float, steps: int) -> int:
    """Return the number of halvings after which the series converges on the longest step.

    Steps have equal length in the clock. `stiffness` is that of an `Ensemble`.
    """
    longest = stiffness * (1 - (1 - 1 / steps) ** 2)
    needed = np.ceil(np.log2(max(longest / _SHORT, 1.0)))
    return int(np.clip(needed, _LEAST_DOUBLINGS, _MOST_DOUBLINGS))


def ensemble(
    sde: SDE,
    mean: Float[np.ndarray, " d"],
    covariance: Float[np.ndarray, "d d"],
    start_time: float | None,
    horizon: float,
    tails: Float[np.ndarray, "n k"] | None = None,
) -> Ensemble:
    """Integrate the moment closure from the moments of the start law to the horizon.

    `tails` are draws of the parameters and start times, if these vary.
    """
    tails = np.zeros((1, 0)) if tails is None or tails.size == 0 else tails
    known = _contents(sde, mean, covariance, start_time, horizon, tails)
    if known in _RECENT:
        return _RECENT[known]
    with jax.enable_x64(True):
        averages = _averages(sde, start_time, tails)
        start = np.asarray(nodes(jnp.asarray(mean), jnp.asarray(np.linalg.cholesky(covariance))))
        kept = start if tails.size else start[:0]
        found = _integrated(averages, np.asarray(mean), covariance, kept, horizon)
    while len(_RECENT) >= _KEPT:
        del _RECENT[next(iter(_RECENT))]
    _RECENT[known] = found
    return found


def _contents(*arguments: Any) -> Hashable:
    """Return what is equal for the same arguments, functions by identity."""

    def coded(leaf: Any) -> Hashable:
        if isinstance(leaf, np.ndarray | jax.Array):
            return leaf.dtype.name, leaf.shape, np.asarray(leaf).tobytes()
        return type(leaf), leaf

    leaves, structure = jax.tree.flatten(arguments)
    return structure, tuple(map(coded, leaves))


def _integrated(
    averages: Callable,
    mean: np.ndarray,
    covariance: np.ndarray,
    start_nodes: np.ndarray,
    horizon: float,
) -> Ensemble:
    dim = len(mean)
    knots = np.linspace(0, np.sqrt(horizon), _KNOTS + 1)
    known = averages(0.0, mean, np.linalg.cholesky(covariance))
    noise0 = _start_noise(known, mean)
    unit = np.linalg.inv(np.linalg.cholesky(noise0))
    spread, memory, bending, turning = np.zeros((dim, dim)), 0.0, 0.0, 0.0
    jacobians, widening, memories = [], [np.eye(dim)], [memory]
    vast = _VAST * np.sqrt(np.trace(covariance) + np.trace(noise0) * horizon)
    first, exploded = mean, False
    for start, end in zip(knots[:-1] ** 2, knots[1:] ** 2, strict=True):
        factor = np.linalg.cholesky(covariance)
        new = averages((start + end) / 2, mean, factor)
        # The frame stays usable where coefficients are not finite; training reports the error.
        known = new if _finite(new) else known
        drift, jacobian, noise, deviation = map(np.asarray, known)
        bending += float(np.linalg.norm(jacobian) + deviation) * (end - start)
        turning += float(deviation) * (end - start)
        jacobian = _without_uncertain_expansion(jacobian, float(deviation))
        step = _Step(jacobian, noise, end - start)
        moved = step.mean(mean, drift), step.covariance(covariance), step.covariance(spread)
        # Training also reports paths that explode and noise that vanishes.
        exploded = exploded or not _regular(*moved[1:], moved[0] - first, vast)
        if exploded:
            jacobian = np.zeros_like(jacobian)
            widening.append(widening[-1])
        else:
            mean, covariance, spread = moved
            widening.append(np.linalg.cholesky(spread) @ unit / np.sqrt(end))
        memory += 2 * np.trace(jacobian) / dim * (end - start)
        jacobians.append(jacobian)
        memories.append(memory)
    middle = np.sqrt((knots[:-1] ** 2 + knots[1:] ** 2) / 2)
    at_knots = CubicSpline(middle, np.stack(jacobians))(knots)
    memories = np.exp(np.minimum(np.array(memories), 0.0))
    return Ensemble(
        drift_jacobian=Spline(knots, at_knots),
        widening=Spline(knots, np.stack(widening)),
        memory=Spline(knots, memories),
        covariance=noise0,
        nodes=start_nodes,
        bending=float(bending),
        turning=float(turning),
        stiffness=float(np.max(np.linalg.norm(jacobians, axis=(1, 2)))) * horizon,
    )


def _start_noise(known: tuple, mean: np.ndarray) -> np.ndarray:
    """Return the mean covariance of the noise under the start law, after checking it."""
    if not _finite(known):
        raise ValueError(
            "Drift or diffusion is not finite at one standard deviation around the mean of the "
            f'start law, {mean}. Use a narrower law, or `source="euler"`.'
        )
    noise0 = np.asarray(known[2])
    if not _definite(noise0):
        raise ValueError(
            "The noise vanishes at one standard deviation around the mean of the start law, or is "
            f"too small for float64: the mean of its covariance is {noise0.tolist()}. Rescale the "
            'state, use a narrower law, or use `source="euler"`.'
        )
    return noise0


def _regular(covariance: np.ndarray, spread: np.ndarray, moved: np.ndarray, vast: float) -> bool:
    """Return `True` if the ensemble has neither exploded nor collapsed."""
    if not _finite((covariance, spread, moved)):
        return False
    sizes = np.sqrt(np.trace(covariance)), np.sqrt(np.trace(spread)), np.linalg.norm(moved)
    return max(map(float, sizes)) <= vast and _definite(covariance) and _definite(spread)


def _definite(matrix: np.ndarray) -> bool:
    try:
        return bool(np.all(np.isfinite(np.linalg.cholesky(matrix))))
    except np.linalg.LinAlgError:
        return False


def _averages(sde: SDE, start_time: float | None, tails: Float[np.ndarray, "n k"]) -> Callable:
    """Return a function for the means of the coefficients under a normal law."""

    @jax.jit
    def averages(tau: Array, mean: Array, factor: Array) -> tuple[Array, Array, Array, Array]:
        def each(tail: Array) -> tuple[Array, Array, Array, Array]:
            found = initial_condition(sde, start_time, jnp.concatenate([mean, tail]))
            return _averages_of(found.sde, found.start_time + tau, mean, factor)

        return jax.tree.map(lambda v: jnp.mean(v, axis=0), jax.vmap(each)(jnp.asarray(tails)))

    return averages


def _averages_of(
    sde: SDE, t: Array, mean: Array, factor: Array
) -> tuple[Array, Array, Array, Array]:
    """Return the means of drift, its Jacobian and covariance, and the spread of the Jacobian."""

    def drift_jacobian(x: Array) -> Array:
        return jax.jacfwd(lambda y: sde.drift(t, y))(x)

    x = nodes(mean, factor)
    jacobian = jnp.mean(jax.vmap(drift_jacobian)(x), axis=0)
    # In a symmetric well all nodes at one distance have the same Jacobian.
    others = jnp.concatenate([nodes(mean, share * factor) for share in (0.0, 0.5, 1.5)])
    squares = (jax.vmap(drift_jacobian)(others) - jacobian[None]) ** 2
    deviation = jnp.sqrt(jnp.mean(jnp.sum(squares, axis=(1, 2))))
    drift = jnp.mean(jax.vmap(lambda y: sde.drift(t, y))(x), axis=0)
    covariance = jnp.mean(jax.vmap(lambda y: sde.covariance(t, y))(x), axis=0)
    return drift, jacobian, covariance, deviation


def nodes(mean: Float[Array, " d"], factor: Float[Array, "d d"]) -> Float[Array, "2d d"]:
    """Return the nodes of a cubature of degree three for a normal law."""
    spread = factor.T * np.sqrt(len(factor))
    return jnp.concatenate([mean[None] + spread, mean[None] - spread])


def _without_uncertain_expansion(jacobian: np.ndarray, deviation: float) -> np.ndarray:
    """Return the drift Jacobian with its expansion rates reduced by its spread over states.

    Where the Jacobian varies, diverging paths do not keep diverging exponentially.
    """
    rates, directions = np.linalg.eigh((jacobian + jacobian.T) / 2)
    kept = np.maximum(rates - _SPREADS * deviation, np.minimum(rates, 0.0))
    return jacobian - (directions * (rates - kept)) @ directions.T


def _finite(values: tuple) -> bool:
    return all(np.all(np.isfinite(value)) for value in values)


class _Step:
    r"""The linear equations $m' = A(m - m_0) + b$, $C' = AC + CA^\top + S$ over one step."""

    def __init__(self, jacobian: np.ndarray, noise: np.ndarray, length: float):
        dim, size = len(jacobian), float(np.linalg.norm(jacobian)) * length
        # The block matrix below contains growing exponentials, which overflow over a long step.
        halvings = int(np.clip(np.ceil(np.log2(max(size / _LONG, 1.0))), 0, _MOST_DOUBLINGS))
        short = length / 2**halvings
        if not size < _LONG * 2.0**_MOST_DOUBLINGS:
            # The caller checks for NaN.
            self.transfer = self.noise = self.integral = np.full((dim, dim), np.nan)
            return
        # Van Loan: one exponential of a block matrix holds the integral of the noise.
        block = np.block([[jacobian, noise], [np.zeros((dim, dim)), -jacobian.T]]) * short
        whole = expm(block)
        self.transfer = whole[:dim, :dim]
        self.noise = whole[:dim, dim:] @ self.transfer.T
        plain = np.block([[jacobian, np.eye(dim)], [np.zeros((dim, 2 * dim))]]) * short
        self.integral = expm(plain)[:dim, dim:]
        with np.errstate(over="ignore", invalid="ignore"):
            for _ in range(halvings):
                self.noise = self.noise + self.transfer @ self.noise @ self.transfer.T
                self.integral = self.integral + self.transfer @ self.integral
                self.transfer = self.transfer @ self.transfer

    def mean(self, mean: np.ndarray, drift: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore", invalid="ignore"):
            return mean + self.integral @ drift

    def covariance(self, covariance: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore", invalid="ignore"):
            new = self.transfer @ covariance @ self.transfer.T + self.noise
            return (new + new.T) / 2
