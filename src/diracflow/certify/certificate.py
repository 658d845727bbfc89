r"""A bound on the total variation distance to the true transition density.

The learned density satisfies $\partial_tP = \mathcal{L}^*P + Pr$ with the residual $r$. The
Fokker--Planck semigroup contracts the $L^1$ norm, so by Duhamel's formula
$$\mathrm{TV}(P_t, \rho_t) \le \tfrac12\int_0^t E_{x\sim P_s}|r_s(x)|\,ds,$$
for every start, with no knowledge of $\rho$. The initial error is zero: in the source's frame both
densities tend to the same normal law as $t\to0$. In the clock $c = \sqrt t$ the residual is bounded
there, so the integral is taken from zero.

Rounding adds a term, see `_rounding`, which matters where the source is exact.

The integral is a sum over the training steps with Gauss nodes in each, because within a step the
density is a smooth function of the clock. The expectation is a mean over new samples of the density
at each node.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..flow.ansatz import AbstractAnsatz
from ..sde.argument_checks import checked_count, checked_key
from ..sde.chart import Chart, start_coordinates
from ..source.gaussian_source import AbstractGaussianSource
from ..source.tabulated import TabulatedSource, with_frame
from ..training.stages import parts
from ..training.state import Trajectory
from ..transition.transition_density import AbstractTransitionDensity, checked_query
from .residual import Moving, velocities

# Gauss nodes of a step.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(3)
# Intervals of the integral, if there are fewer steps.
_INTERVALS = 8
# Points of a tile, all at one time, and tiles of one call. Fixed, so that all calls share one
# compilation.
_TILE, _TILES = 128, 32
# Roundings of a position: of start, mean and point, and in the products between them.
_ROUNDINGS = 4


class Estimate(NamedTuple):
    """Estimates of total variation distances to the true density; see `certify.estimate`."""

    value: Float[np.ndarray, "*batch"]
    stderr: Float[np.ndarray, "*batch"]  # standard error of `value`
    parts: Mapping[str, Float[np.ndarray, "*batch"]]  # what `value` is the sum of

    @property
    def dominant(self) -> Any:
        """The name of the largest part, for each time and start."""
        names, sizes = np.array(list(self.parts)), np.stack(list(self.parts.values()))
        return names[np.argmax(sizes, axis=0)]


class Certificate(NamedTuple):
    """Upper bounds on total variation distances to the true density."""

    bound: Float[np.ndarray, "*batch"]
    stderr: Float[np.ndarray, "*batch"]  # standard error of `bound`
    estimate: Estimate | None = None  # if it was asked for


class CertificateQuery(NamedTuple):
    """Checked arguments of a certificate; starts are in the coordinates of the chart."""

    key: PRNGKeyArray
    t: Float[np.ndarray, "*batch"]
    start: Float[np.ndarray, "*batch d+k"]
    samples: int
    precision: float  # of the arithmetic in which the density is evaluated


def certificate_query(
    density: AbstractTransitionDensity,
    chart: Chart,
    key: PRNGKeyArray,
    samples: int,
    **query: Any,
) -> CertificateQuery:
    """Check the arguments of a certificate; `query` has those of `checked_query`."""
    key, samples = checked_key(key), checked_count("samples", samples, least=2)
    precision = float(jnp.finfo(jnp.result_type(float)).eps)
    with jax.enable_x64(True):
        time, start = map(np.asarray, checked_query(density, **query))
        if not time.size or not start.size:
            shapes = f"{time.shape} and {start.shape}"
            raise ValueError(f"Give one time and one start at least; got shapes {shapes}.")
        start = np.asarray(start_coordinates(chart, start))
    return CertificateQuery(key, time, start, samples, precision)


def certificate(
    ansatz: AbstractAnsatz, trajectory: Trajectory, query: CertificateQuery
) -> Certificate:
    """Return the bound for every pair of the broadcast times and starts.

    Bounds may exceed one, although no two laws do. Callers cut them off once they have added them
    up.
    """
    key, t, x0, samples, precision = query
    marks, time_index = np.unique(np.sqrt(t), return_inverse=True)
    starts, start_index = np.unique(x0.reshape(-1, x0.shape[-1]), axis=0, return_inverse=True)
    # A source that was not trained has no steps.
    even = marks[-1] * np.linspace(0, 1, _INTERVALS + 1)
    knots = trajectory.clocks if len(trajectory.clocks) > _INTERVALS else even
    edges = np.unique(np.concatenate([[0.0], knots, trajectory.clocks, marks]))
    edges = edges[edges <= marks[-1]]
    nodes, weights = _gauss(edges)
    with jax.enable_x64(True):
        sizes = _residual_sizes(ansatz, trajectory, key, nodes, starts, samples)
        rounding = precision * np.asarray(
            _rounding(ansatz, jnp.asarray(marks**2), jnp.asarray(starts))
        )
    last_node = len(_NODES) * np.searchsorted(edges, marks) - 1
    bound = np.cumsum(0.5 * weights[:, None] * sizes.mean(axis=2), axis=0)[last_node] + rounding
    variances = sizes.var(axis=2, ddof=1) / samples
    variance = np.cumsum(0.25 * weights[:, None] ** 2 * variances, axis=0)[last_node]
    pairs = time_index.reshape(t.shape), start_index.reshape(x0.shape[:-1])
    return Certificate(bound[pairs], np.sqrt(variance[pairs]))


@eqx.filter_jit
def _rounding(
    ansatz: AbstractAnsatz, times: Float[Array, " k"], starts: Float[Array, "starts d+k"]
) -> Float[Array, "k starts"]:
    """Return a bound on the effect of rounding, in units of the precision.

    Shifting a normal law by a small fraction of its width changes it by less than half of that
    fraction in total variation. Rounding errors are proportional to the size of start and mean, so
    a narrow density far from zero is shifted most. One unit is added for rounding of the logarithm.
    """

    def shift(tau: Array, x0: Array) -> Array:
        frame = ansatz.source.frame(tau, x0)
        size = jnp.abs(frame.mean) + jnp.abs(x0[: len(frame.mean)])
        per_width = jnp.abs(frame.inverses()[1])
        return _ROUNDINGS * (jnp.sum(per_width @ size) / 2 + len(size))

    return jax.vmap(lambda tau: jax.vmap(lambda x0: shift(tau, x0))(starts))(times)


def _gauss(edges: Float[np.ndarray, " k+1"]) -> tuple[np.ndarray, np.ndarray]:
    """Return the nodes and weights of the Gauss rule on all intervals between the edges."""
    middle, half = (edges[1:] + edges[:-1]) / 2, (edges[1:] - edges[:-1]) / 2
    nodes = middle[:, None] + half[:, None] * _NODES
    return nodes.ravel(), (half[:, None] * _WEIGHTS).ravel()


def _residual_sizes(
    ansatz: AbstractAnsatz,
    trajectory: Trajectory,
    key: PRNGKeyArray,
    nodes: Float[np.ndarray, " k"],
    starts: Float[np.ndarray, "starts d+k"],
    samples: int,
) -> Float[np.ndarray, "k starts samples"]:
    """Return absolute residuals at new samples, for every node and start."""
    rng = np.random.default_rng(np.asarray(jr.key_data(key)).ravel())
    per_node = -(-len(starts) * samples // _TILE)
    ansatz, tables = _tabulated(ansatz, nodes, starts)
    which = np.resize(np.repeat(np.arange(len(starts)), samples), (per_node, _TILE))
    blocks, dim = [], ansatz.source.sde.dim
    # Tiles in the order of time; the last block is filled up with tiles that are not used.
    blocks_needed = -(-len(nodes) * per_node // _TILES)
    tiles = np.resize(np.arange(len(nodes) * per_node), (blocks_needed, _TILES))
    for block in parts("error bound", list(tiles)):
        clocks = jnp.asarray(nodes[block // per_node])
        noise = jnp.asarray(rng.normal(size=(_TILES, _TILE, dim)))
        moved = velocities(trajectory, clocks)
        x0 = tables[(block // per_node)[:, None] % len(tables), which[block % per_node]]
        # As an array of NumPy, because `parts` measures the time.
        blocks.append(np.asarray(_tile_sizes(ansatz, *moved, clocks, noise, jnp.asarray(x0))))
    sizes = np.concatenate(blocks)[: len(nodes) * per_node]
    flat = sizes.reshape(len(nodes), -1)[:, : len(starts) * samples]
    return flat.reshape(len(nodes), len(starts), samples)


def _tabulated(
    ansatz: AbstractAnsatz, nodes: Float[np.ndarray, " k"], starts: Float[np.ndarray, "starts n"]
) -> tuple[AbstractAnsatz, Float[np.ndarray, "k starts m"]]:
    """Return conditioning vectors at each node, with frames if these take long to compute."""
    source = ansatz.source
    if not source.integrates:
        return ansatz, starts[None]
    clocks, x0 = parts("error bound, frames", list(nodes)), jnp.asarray(starts)
    tables = [np.asarray(_frames(source, jnp.asarray(c), x0)) for c in clocks]
    return eqx.tree_at(lambda a: a.source, ansatz, TabulatedSource(source)), np.stack(tables)


@eqx.filter_jit
def _frames(source: AbstractGaussianSource, clock: Array, starts: Array) -> Array:
    return jax.vmap(lambda x0: with_frame(source, clock, x0))(starts)


@eqx.filter_jit
def _tile_sizes(
    ansatz: AbstractAnsatz,
    thetas: Float[Array, "tiles m"],
    theta_dots: Float[Array, "tiles m"],
    clocks: Float[Array, " tiles"],
    noise: Float[Array, "tiles n d"],
    x0: Float[Array, "tiles n d+k"],
) -> Float[Array, "tiles n"]:
    def tile(args: tuple[Array, ...]) -> Array:
        theta, theta_dot, clock, noise, x0 = args
        state = Moving(ansatz.at(theta), theta_dot, clock)

        def size(noise: Array, x0: Array) -> Array:
            return jnp.abs(state.residual(state.ansatz.place(noise, clock, x0), x0))

        return jax.vmap(size)(noise, x0)

    return jax.lax.map(tile, (thetas, theta_dots, clocks, noise, x0))
