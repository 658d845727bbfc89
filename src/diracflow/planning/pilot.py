"""Simulated paths, which show how far a source is from the density.

A few thousand ends of paths take seconds. What they show needs no assumptions about the drift.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import digamma

from ..sde.problem import Problem
from ..source.gaussian_source import AbstractGaussianSource
from .explosion import simulated

# Starts, paths from each of them, and shares of the horizon at which they end.
_STARTS, _PATHS, _SHARES = 32, 64, (0.25, 1.0)
# At most this number of steps, and the bound of the drift Jacobian times the length of a step.
_STEPS, _STEP = 256, 0.4


class Pilot(NamedTuple):
    """Ends of simulated paths at several times, in the coordinates of the chart."""

    times: Float[Array, " k"]
    starts: Float[Array, "n d+k"]  # conditioning vectors
    ends: Float[Array, "k n p d"]  # of p paths from each start


def pilot(problem: Problem) -> Pilot:
    """Simulate paths from draws of the start law."""
    starts = jnp.asarray(problem.draws(_STARTS))
    times = jnp.asarray(_SHARES) * problem.horizon
    each = jnp.repeat(starts, _PATHS, axis=0)
    ends = [_ends(problem, t, each) for t in times]
    return Pilot(times, starts, jnp.stack(ends).reshape(len(times), len(starts), _PATHS, -1))


def _ends(problem: Problem, t: Array, starts: Float[Array, "n d+k"]) -> Float[Array, "n d"]:
    """Return the ends of paths at time `t`; NaN for those that did not get there."""
    found = simulated(problem.equation, problem.start_time, t, starts, _STEPS, _STEP)
    return jnp.where((found[1] == t)[:, None], found[0], jnp.nan)


def misfit(source: AbstractGaussianSource, paths: Pilot) -> float:
    """Return the distance in nats of a source from the Gaussians with the moments of the paths.

    It is the Kullback--Leibler divergence, averaged over starts, at the worst of the times. A flow
    has to make up for it before it can represent anything else.
    """
    zeta = np.asarray(_standardised(source, paths))
    n, dim = zeta.shape[-2:]
    mean = zeta.mean(axis=-2)
    centred = zeta - mean[..., None, :]
    covariance = np.einsum("...pi,...pj->...ij", centred, centred) / (n - 1)
    log_det = np.linalg.slogdet(covariance)[1]
    # The bias of the log-determinant, and of the squared mean, of a sample.
    log_det -= np.sum(digamma((n - 1 - np.arange(dim)) / 2)) - dim * np.log((n - 1) / 2)
    trace = np.trace(covariance, axis1=-2, axis2=-1)
    divergences = 0.5 * (trace * (1 - 1 / n) + np.sum(mean**2, axis=-1) - dim - log_det)
    # Starts whose paths did not all arrive tell nothing. If there are no others, nor do the paths.
    means = [np.mean(row[np.isfinite(row)]) for row in divergences if np.isfinite(row).any()]
    return max(map(float, means), default=0.0)


@eqx.filter_jit
def _standardised(source: AbstractGaussianSource, paths: Pilot) -> Float[Array, "k n p d"]:
    def one(t: Array, start: Array, ends: Array) -> Array:
        return jax.vmap(source.frame(t, start).standardise)(ends)

    return jax.vmap(jax.vmap(one, (None, 0, 0)), (0, None, 0))(
        paths.times, paths.starts, paths.ends
    )
