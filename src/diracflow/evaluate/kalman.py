r"""Kalman filter: exact filtering of linear SDEs, a reference for the particle filter.

Observations are $y = Hx + \varepsilon$ with Gaussian $\varepsilon$ of covariance $R$.
"""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike, Float
from scipy.stats import multivariate_normal

from ..models.exact_densities import ExactLinear
from ..sde.laws import Normal


@dataclass(frozen=True)
class Kalman:
    """Gaussian laws of the state given the observations up to each time."""

    log_evidence: float
    means: Float[np.ndarray, "n d"]
    covariances: Float[np.ndarray, "n d d"]


def kalman_filter(
    density: ExactLinear,
    times: Float[ArrayLike, " n"],
    observations: Float[ArrayLike, "n k"],
    matrix: Float[ArrayLike, "k d"],
    noise: Float[ArrayLike, "k k"],
    initial: Normal,
    start: float = 0.0,
) -> Kalman:
    """Filter linear observations of a linear SDE exactly.

    **Arguments:**

    - `density`: the exact transition density of a linear SDE.
    - `times`: increasing times of the observations.
    - `observations`: one row for each time; a row of NaN is missing.
    - `matrix`, `noise`: $H$ and the covariance $R$ of the observation error.
    - `initial`: the Gaussian law of the state at time `start`.
    - `start`: time at which `initial` holds.
    """
    law, level, h = initial.expand(density.dim), density.level, np.asarray(matrix)
    factor = law.factor if law.factor.ndim == 2 else np.diag(law.factor)
    mean, covariance = law.mean, factor @ factor.T
    log_evidence, means, covariances = 0.0, [], []
    gaps = np.diff(np.asarray(times, dtype=float), prepend=start)
    for gap, y in zip(gaps, np.asarray(observations, dtype=float), strict=True):
        if gap > 0:
            change, factor = map(np.asarray, density._at_time(jnp.asarray(gap)))
            decay = np.eye(len(change)) + change
            mean = level + decay @ (mean - level)
            covariance = decay @ covariance @ decay.T + factor @ factor.T
        if not np.isnan(y).all():
            spread = h @ covariance @ h.T + np.asarray(noise)
            gain = np.linalg.solve(spread, h @ covariance).T
            log_evidence += float(multivariate_normal.logpdf(y, h @ mean, spread))
            mean, covariance = mean + gain @ (y - h @ mean), covariance - gain @ h @ covariance
        means.append(mean)
        covariances.append(covariance)
    return Kalman(log_evidence, np.stack(means), np.stack(covariances))
