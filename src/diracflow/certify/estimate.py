r"""An estimate of the total variation distance to the true transition density.

The bound of `certificate` adds up absolute residuals. Most of them cancel, because noise mixes
states before their effect is seen. The ratio $w = \rho/P$ of the true and the learned density obeys
$$\partial_cw = (g + S\nabla q)\cdot\nabla w + \tfrac12S:\nabla^2w - rw,\qquad w = 1
\text{ at }c = 0,$$
in the moving frame, with $q$ the log-ratio of $P$ to $N(0, I)$ and $r$ its residual. By the
Feynman--Kac formula $w(x) = E[\exp(-\int r\,dc)]$ over paths that begin at $x$ and run back in time
under the law of the learned density. Neither a reference nor paths of the SDE are needed.

The mean square of $w - 1$ is the mean product of two independent halves of the paths of each point,
so that their noise does not make it larger. The total variation is $\tfrac12E|w - 1|$. It is the
root mean square divided by $\sqrt{2\pi}$ if $w - 1$ is distributed as a normal law.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..flow.ansatz import AbstractAnsatz, StandardisedAnsatz
from ..source.tabulated import TabulatedSource, with_frame
from ..training.stages import parts
from ..training.state import Trajectory
from .certificate import CertificateQuery, Estimate
from .residual import Moving, velocities

# Draws of the learned density, and paths from each of them, half of which are used at a time.
_POINTS, _PATHS = 128, 16
# Steps of a path, of equal ratio, and the part of the clock that they leave out. The frame forgets
# where a path was as fast as the clock shrinks, so that residuals there have no effect.
_STEPS, _LEFT_OUT = 192, 0.02
# Integrals of the residual are cut off here: one path must not decide.
_LARGEST = 4.0


def estimates(ansatz: AbstractAnsatz, trajectory: Trajectory, query: CertificateQuery) -> Estimate:
    """Return the estimate for every pair of the broadcast times and starts."""
    if not isinstance(ansatz, StandardisedAnsatz):
        raise ValueError(
            "`estimate=True` needs a flow in the coordinates of the source; the paper's affine "
            "flow has the bound only."
        )
    shape = np.broadcast_shapes(query.t.shape, query.start.shape[:-1])
    times = np.broadcast_to(query.t, shape)
    starts = np.broadcast_to(query.start, (*shape, query.start.shape[-1]))
    found = np.zeros((2, *shape))
    indices = list(np.ndindex(shape))
    for number, index in enumerate(parts("error estimate", indices)):
        key = jr.fold_in(query.key, number)
        found[(slice(None), *index)] = _estimate(
            ansatz, trajectory, key, float(times[index]), starts[index]
        )
    value, stderr = found
    return Estimate(value, stderr, {"first subinterval": value})


def _estimate(
    ansatz: StandardisedAnsatz,
    trajectory: Trajectory,
    key: PRNGKeyArray,
    t: float,
    x0: Float[np.ndarray, " d+k"],
) -> tuple[float, float]:
    """Return the distance at one time from one start, and its standard error."""
    ratio = _LEFT_OUT ** (1 / _STEPS)
    edges = math.sqrt(t) * ratio ** np.arange(_STEPS + 1)
    with jax.enable_x64(True):
        clocks = jnp.asarray(edges[:-1])
        tables = _tables(ansatz, clocks, jnp.asarray(x0))
        path = *velocities(trajectory, clocks), clocks, jnp.asarray(-np.diff(edges)), tables
        tabulated = eqx.tree_at(lambda a: a.source, ansatz, TabulatedSource(ansatz.source))
        integrals = np.asarray(_integrals(tabulated, path, key))
    weights = np.exp(np.clip(-integrals, -_LARGEST, _LARGEST))
    first, second = (1 - half.mean(axis=1) for half in np.split(weights, 2, axis=1))
    products = first * second
    square, noise = products.mean(), products.std(ddof=1) / math.sqrt(_POINTS)
    value = math.sqrt(max(square, 0.0) / (2 * math.pi))
    return value, math.sqrt((max(square, 0.0) + noise) / (2 * math.pi)) - value


@eqx.filter_jit
def _tables(
    ansatz: StandardisedAnsatz, clocks: Float[Array, " k"], x0: Float[Array, " d+k"]
) -> Float[Array, "k n"]:
    return jax.vmap(lambda clock: with_frame(ansatz.source, clock, x0))(clocks)


@eqx.filter_jit
def _integrals(
    ansatz: StandardisedAnsatz, path: tuple[Array, ...], key: PRNGKeyArray
) -> Float[Array, "points paths"]:
    """Return integrals of the residual along paths that run back from draws of the density.

    `path` has parameters, their velocities, clocks, lengths and conditioning vectors of the steps.
    """
    draw_key, path_key = jr.split(key)
    dim = ansatz.source.sde.dim
    thetas, _, clocks, _, tables = path
    noise = jr.normal(draw_key, (_POINTS, dim))
    last = ansatz.at(thetas[0])
    draws = jax.vmap(lambda z: last.place(z, clocks[0], tables[0]))(noise)

    def step(state: tuple[Array, Array], now: tuple[Array, ...]) -> tuple[tuple, None]:
        (y, integral), (theta, theta_dot, clock, length, x0, step_key) = state, now
        here = ansatz.at(theta)
        moving = Moving(here, theta_dot, clock)

        def one(y: Array, noise: Array) -> tuple[Array, Array]:
            columns, drift = here.reverse(y, clock, x0)
            moved = y + length * drift + jnp.sqrt(length) * columns @ noise
            return moved, length * moving.residual(y, x0)

        shocks = jr.normal(step_key, (len(y), ansatz.source.sde.noise_dim))
        moved, change = jax.vmap(one)(y, shocks)
        return (moved, integral + change), None

    begin = jnp.repeat(draws, _PATHS, axis=0), jnp.zeros(_POINTS * _PATHS)
    keys = jr.split(path_key, _STEPS)
    (_, integral), _ = jax.lax.scan(step, begin, (*path, keys))
    return integral.reshape(_POINTS, _PATHS)
