r"""The law of starts, widened by where paths go.

Where the horizon is divided, later subintervals begin at the ends of earlier ones. The flow learns
one subinterval for all of these starts, so that the law of starts must cover them, too.

The wider law is a mixture of the law given and of a normal law of the beginnings, in the
coordinates of the chart. Points far out are few, and cost most. For two genes that repress each
other (`quick`, horizon 3, six subintervals), one normal law that holds starts and beginnings is so
wide that training stopped at t = 2e-4. With the mixture and eight subintervals it takes 65 steps.
"""

import dataclasses

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Float

from ..sde.conditioning import OUTSIDE, ConditioningLaws, furthest
from ..sde.laws import Normal
from ..sde.mixture import Mixture
from ..sde.problem import Problem
from .explosion import simulated

# Share of paths that may lie outside the start law when the last subinterval begins, and share of
# all beginnings that may lie outside a widened law.
_MAY_LEAVE, _BEYOND = 0.02, 0.01
_PATHS = 2048
# Times at which paths are looked at, as shares of the time when the last subinterval begins.
_SHARES = (0.25, 0.5, 0.75, 1.0)


def stays(problem: Problem, legs: int) -> bool:
    """Return `True` if paths lie within the start law when the last of `legs` begins."""
    x0, last = _paths(problem, legs, (1.0,))
    gone = jnp.concatenate([jnp.asarray(last), x0[:, problem.dim :]], axis=1)
    outside = problem.laws.outside(problem.states(gone), OUTSIDE)
    return float(np.mean(np.asarray(outside))) <= _MAY_LEAVE


def widened(problem: Problem, legs: int) -> Problem:
    """Return the problem with a law of starts that covers where subintervals begin."""
    _, begins = _paths(problem, legs, _SHARES)
    begins = begins[np.all(np.isfinite(begins), axis=1)]
    mean, covariance = begins.mean(axis=0), np.atleast_2d(np.cov(begins, rowvar=False))
    reached = np.quantile(_distances(begins, mean, covariance), 1 - _BEYOND)
    scale = reached / furthest(problem.dim, OUTSIDE)
    later = problem.chart.state_law(Normal(mean, covariance=scale * covariance))
    laws = problem.laws
    law = Mixture([laws.starts, later])
    wide = ConditioningLaws(law, laws.params, laws.start_times, laws.names)
    return dataclasses.replace(problem, laws=wide)


def _paths(
    problem: Problem, legs: int, shares: tuple[float, ...]
) -> tuple[Float[jnp.ndarray, "n d+k"], Float[np.ndarray, "m d"]]:
    """Return conditioning vectors, and where paths are at shares of the last beginning."""
    x0, last = problem.law.sample(jr.key(0), (_PATHS,)), problem.horizon * (1 - 1 / legs)
    times = [jnp.asarray(share * last) for share in shares]
    ends = [simulated(problem.equation, problem.start_time, t, x0)[0] for t in times]
    return x0, np.concatenate([np.asarray(end) for end in ends])


def _distances(
    points: Float[np.ndarray, "n d"], mean: np.ndarray, covariance: np.ndarray
) -> Float[np.ndarray, " n"]:
    """Return squared distances from the mean, in standard deviations."""
    centred = points - mean
    return np.sum(centred * np.linalg.solve(covariance, centred.T).T, axis=1)
