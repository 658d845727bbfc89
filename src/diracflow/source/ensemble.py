r"""How the whole ensemble of paths moves and spreads, to first approximation.

A Gaussian started from the moments of the start law follows moment closure,
$m_e' = E[b]$, $C_e' = AC_e + C_eA^\top + E[\Sigma]$ with $A = E[\nabla b]$ under $N(m_e, C_e)$.
What sources need of it is computed once and kept as splines in the clock $c = \sqrt\tau$.

Where parameters of the SDE or the time of the start vary, expectations are over them, too.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.interpolate import CubicSpline
from scipy.linalg import expm

from ..sde.conditioning import given
from ..sde.sde import SDE

# Knots of the splines: with rates of 20 over a horizon of 10 the source of a linear SDE then leaves
# a forcing of 1e-7 nats per unit of clock.
_KNOTS = 2048
# Expansion counts as far as it exceeds so many times the spread of the slopes.
_SPREADS = 3.0
# An ensemble so many times as wide, or as far away, as its starts and the noise of the horizon are
# has exploded. Larger values would spoil splines far from where they stand.
_VAST = 1e12
# Size of an exponent above which a step is halved: exponentials of larger ones overflow.
_LONG = 30.0
# Exponent that a source's series takes at once; see `Ensemble.doublings`.
_SHORT, _LEAST_DOUBLINGS, _MOST_DOUBLINGS = 0.19, 7, 40


class Spline(eqx.Module):
    """A matrix-valued function of the clock, twice continuously differentiable."""

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
    r"""What an ensemble of paths tells about each of them.

    - `slopes`: $A(\tau)$;
    - `widening`: the lower triangular $M$ for which $cM\Sigma_0M^\top c$ solves
      $C' = AC + CA^\top + E[\Sigma]$ from $C = 0$: the spread of a path from a point;
    - `memory`: what is left of a small volume after a time, squared and for each dimension; at
      most 1;
    - `covariance`: $\Sigma_0 = E[\Sigma]$ under the start law;
    - `nodes`: points that stand for the start law where parameters or start times vary; else none;
    - `bending`: the size of the drift's slopes, integrated over time: what a drift does to the
      shape of an ensemble;
    - `turning`: how far slopes at different states differ, integrated over time: none where the
      drift is linear;
    - `stiffness`: the largest of the slopes, times the horizon.
    """

    slopes: Spline
    widening: Spline
    memory: Spline
    covariance: Float[np.ndarray, "d d"]
    nodes: Float[np.ndarray, "n d"]
    bending: float = eqx.field(static=True)
    turning: float = eqx.field(static=True)
    stiffness: float = eqx.field(static=True, default=0.0)


def doublings(stiffness: float, steps: int) -> int:
    """Halvings after which a series holds for the longest of some steps, equal in the clock.

    `stiffness` is the product of slopes and horizon.
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
    """Moment closure from the mean and covariance of the start law up to the horizon.

    `tails` are draws of what is given beside the start, parameters and start times.
    """
    tails = np.zeros((1, 0)) if tails is None or tails.size == 0 else tails
    with jax.enable_x64(True):
        averages = _averages(sde, start_time, tails)
        start = np.asarray(nodes(jnp.asarray(mean), jnp.asarray(np.linalg.cholesky(covariance))))
        kept = start if tails.size else start[:0]
        return _integrated(averages, np.asarray(mean), covariance, kept, horizon)


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
    if not _finite(known):
        raise ValueError(
            "Drift or diffusion is not finite at one standard deviation around the mean of the "
            f'start law, {mean}. Narrow the law, or use `source="euler"`.'
        )
    noise0 = np.asarray(known[2])
    if not _definite(noise0):
        raise ValueError(
            "The noise vanishes at one standard deviation around the mean of the start law, or is "
            f"too small for float64: the mean of its covariance is {noise0.tolist()}. Measure "
            'states in other units, narrow the law, or use `source="euler"`.'
        )
    unit = np.linalg.inv(np.linalg.cholesky(noise0))
    spread, memory, bending, turning = np.zeros((dim, dim)), 0.0, 0.0, 0.0
    slopes, widening, memories = [], [np.eye(dim)], [memory]
    vast = _VAST * np.sqrt(np.trace(covariance) + np.trace(noise0) * horizon)
    first, exploded = mean, False
    for start, end in zip(knots[:-1] ** 2, knots[1:] ** 2, strict=True):
        factor = np.linalg.cholesky(covariance)
        new = averages((start + end) / 2, mean, factor)
        # Where coefficients are not finite training will say so; a frame is there until then.
        known = new if _finite(new) else known
        drift, slope, noise, doubt = map(np.asarray, known)
        bending += float(np.linalg.norm(slope) + doubt) * (end - start)
        turning += float(doubt) * (end - start)
        slope = _without_doubtful_expansion(slope, float(doubt))
        step = _Step(slope, noise, end - start)
        moved = step.mean(mean, drift), step.covariance(covariance), step.covariance(spread)
        # Where paths explode, or noise is lost, training will say so, too.
        exploded = exploded or not _regular(*moved[1:], moved[0] - first, vast)
        if exploded:
            slope = np.zeros_like(slope)
            widening.append(widening[-1])
        else:
            mean, covariance, spread = moved
            widening.append(np.linalg.cholesky(spread) @ unit / np.sqrt(end))
        memory += 2 * np.trace(slope) / dim * (end - start)
        slopes.append(slope)
        memories.append(memory)
    middle = np.sqrt((knots[:-1] ** 2 + knots[1:] ** 2) / 2)
    at_knots = CubicSpline(middle, np.stack(slopes))(knots)
    memories = np.exp(np.minimum(np.array(memories), 0.0))
    return Ensemble(
        slopes=Spline(knots, at_knots),
        widening=Spline(knots, np.stack(widening)),
        memory=Spline(knots, memories),
        covariance=noise0,
        nodes=start_nodes,
        bending=float(bending),
        turning=float(turning),
        stiffness=float(np.max(np.linalg.norm(slopes, axis=(1, 2)))) * horizon,
    )


def _regular(covariance: np.ndarray, spread: np.ndarray, way: np.ndarray, vast: float) -> bool:
    """Whether an ensemble has neither left for infinity nor collapsed."""
    if not _finite((covariance, spread, way)):
        return False
    sizes = np.sqrt(np.trace(covariance)), np.sqrt(np.trace(spread)), np.linalg.norm(way)
    return max(map(float, sizes)) <= vast and _definite(covariance) and _definite(spread)


def _definite(matrix: np.ndarray) -> bool:
    try:
        return bool(np.all(np.isfinite(np.linalg.cholesky(matrix))))
    except np.linalg.LinAlgError:
        return False


def _averages(sde: SDE, start_time: float | None, tails: Float[np.ndarray, "n k"]) -> Callable:
    """Means of drift, slopes and covariance under a normal law, and the spread of the slopes."""

    @jax.jit
    def averages(tau: Array, mean: Array, factor: Array) -> tuple[Array, Array, Array, Array]:
        def each(tail: Array) -> tuple[Array, Array, Array, Array]:
            found = given(sde, start_time, jnp.concatenate([mean, tail]))
            return _averages_of(found.sde, found.start_time + tau, mean, factor)

        return jax.tree.map(lambda v: jnp.mean(v, axis=0), jax.vmap(each)(jnp.asarray(tails)))

    return averages


def _averages_of(
    sde: SDE, t: Array, mean: Array, factor: Array
) -> tuple[Array, Array, Array, Array]:
    def slopes(x: Array) -> Array:
        return jax.jacfwd(lambda y: sde.drift(t, y))(x)

    x = nodes(mean, factor)
    slope = jnp.mean(jax.vmap(slopes)(x), axis=0)
    # Nodes at one distance see one slope in a symmetric well.
    others = jnp.concatenate([nodes(mean, share * factor) for share in (0.0, 0.5, 1.5)])
    doubt = jnp.sqrt(jnp.mean(jnp.sum((jax.vmap(slopes)(others) - slope[None]) ** 2, axis=(1, 2))))
    drift = jnp.mean(jax.vmap(lambda y: sde.drift(t, y))(x), axis=0)
    return drift, slope, jnp.mean(jax.vmap(lambda y: sde.covariance(t, y))(x), axis=0), doubt


def nodes(mean: Float[Array, " d"], factor: Float[Array, "d d"]) -> Float[Array, "2d d"]:
    """Nodes of a cubature of degree three for the normal law with this mean and factor."""
    spread = factor.T * np.sqrt(len(factor))
    return jnp.concatenate([mean[None] + spread, mean[None] - spread])


def _without_doubtful_expansion(slope: np.ndarray, doubt: float) -> np.ndarray:
    """Slopes whose expanding part counts only beyond what their variation explains.

    Where slopes vary, paths that part do not go on parting exponentially.
    """
    rates, directions = np.linalg.eigh((slope + slope.T) / 2)
    kept = np.maximum(rates - _SPREADS * doubt, np.minimum(rates, 0.0))
    return slope - (directions * (rates - kept)) @ directions.T


def _finite(values: tuple) -> bool:
    return all(np.all(np.isfinite(value)) for value in values)


class _Step:
    r"""The linear equations $m' = A(m - m_0) + b$, $C' = AC + CA^\top + S$ over one step."""

    def __init__(self, slope: np.ndarray, noise: np.ndarray, length: float):
        dim, size = len(slope), float(np.linalg.norm(slope)) * length
        # Beside what decays, the block below holds what grows: over a long step it overflows.
        halvings = int(np.clip(np.ceil(np.log2(max(size / _LONG, 1.0))), 0, _MOST_DOUBLINGS))
        short = length / 2**halvings
        if not size < _LONG * 2.0**_MOST_DOUBLINGS:
            # Looked for by who takes the step.
            self.transfer = self.noise = self.integral = np.full((dim, dim), np.nan)
            return
        # Van Loan: one exponential of a block matrix holds the integral of the noise.
        block = np.block([[slope, noise], [np.zeros((dim, dim)), -slope.T]]) * short
        whole = expm(block)
        self.transfer = whole[:dim, :dim]
        self.noise = whole[:dim, dim:] @ self.transfer.T
        plain = np.block([[slope, np.eye(dim)], [np.zeros((dim, 2 * dim))]]) * short
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
