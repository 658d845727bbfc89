"""Simulated paths, which show how far a source is from the density.

A few thousand ends of paths take seconds. What they show needs no assumptions about the drift.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float
from scipy.special import digamma

from ..flow.ansatz import AbstractAnsatz
from ..sde.heun import heun_paths
from ..sde.problem import Problem
from ..source.gaussian_source import AbstractGaussianSource
from ..source.tabulated import TabulatedSource, with_frame
from .normality import Distance, distance_from_normal

# Starts, paths from each of them, and shares of the horizon at which they end.
_STARTS, _PATHS, _SHARES = 32, 256, (0.25, 0.5, 1.0)
# Paths from each start that measure a distance of a per cent.
MANY = 4096
# Steps up to each of the times.
_STEPS = 128


class Pilot(NamedTuple):
    """Ends of simulated paths at several times, in the coordinates of the chart."""

    times: Float[Array, " k"]
    starts: Float[Array, "n d+k"]  # conditioning vectors
    ends: Float[Array, "k n p d"]  # of p paths from each start

    @property
    def last(self) -> "Pilot":
        """The ends at the latest time."""
        return Pilot(self.times[-1:], self.starts, self.ends[-1:])

    def later_starts(self, dim: int) -> Float[Array, "n d+k"]:
        """Return the starts, with the ends of one path each at the middle time instead of half."""
        moved = self.ends[len(self.times) // 2, ::2, 0]
        return self.starts.at[::2, :dim].set(moved)


def pilot(
    problem: Problem, paths: int = _PATHS, starts: Float[Array, "n d+k"] | None = None
) -> Pilot:
    """Simulate a number of paths from each of some conditioning vectors.

    By default these are draws of their law.
    """
    starts = jnp.asarray(problem.draws(_STARTS)) if starts is None else starts
    times = jnp.asarray(_SHARES) * problem.horizon
    each = jnp.repeat(starts, paths, axis=0)
    ends = heun_paths(problem.equation, problem.start_time, jr.key(2), each, times, _STEPS)
    return Pilot(times, starts, ends.reshape(len(times), len(starts), paths, -1))


def distance(law: AbstractGaussianSource | AbstractAnsatz, paths: Pilot) -> Distance:
    """Return the total variation distance of a law from simulated paths, at the worst time."""
    return max(distances(law, paths), key=lambda found: found.value)


def distances(law: AbstractGaussianSource | AbstractAnsatz, paths: Pilot) -> list[Distance]:
    """Return the total variation distance of a law from simulated paths, at each time."""
    return [distance_from_normal(z) for z in _standardised(law, paths)]


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


def _standardised(
    law: AbstractGaussianSource | AbstractAnsatz, paths: Pilot
) -> Float[Array, "k n p d"]:
    """Return the noise of which a law makes the ends of paths."""
    source = law if isinstance(law, AbstractGaussianSource) else law.source
    # Frames are computed apart, because their program does not depend on the number of paths.
    tables = _tables(source, paths.times, paths.starts)
    tabulated = TabulatedSource(source)
    if isinstance(law, AbstractAnsatz):
        return _noise(eqx.tree_at(lambda a: a.source, law, tabulated), paths, tables)
    return _noise(tabulated, paths, tables)


@eqx.filter_jit
def _tables(source: AbstractGaussianSource, times: Array, starts: Array) -> Float[Array, "k n m"]:
    table = lambda t, start: with_frame(source, jnp.sqrt(t), start, moving=False)
    return jax.vmap(jax.vmap(table, (None, 0)), (0, None))(times, starts)


@eqx.filter_jit
def _noise(law: Any, paths: Pilot, tables: Float[Array, "k n m"]) -> Float[Array, "k n p d"]:
    def one(t: Array, start: Array, ends: Array) -> Array:
        return jax.vmap(lambda x: law.to_noise(x, t, start)[0])(ends)

    return jax.vmap(jax.vmap(one, (None, 0, 0)), (0, 0, 0))(paths.times, tables, paths.ends)
