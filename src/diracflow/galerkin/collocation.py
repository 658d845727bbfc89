r"""Collocation points, at which the Fokker--Planck residual is minimised.

A draw consists of a conditioning vector $x_0$ (the start, followed by the parameters of the SDE and
the start time if these vary) and of standard normal noise $\xi$. The current flow maps the noise to
a sample $x$ of the current density, so the residual is evaluated where the mass is. The pairs
$(x_0, \xi)$ are fixed during a step and drawn again for the next.
"""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.special import ndtr, ndtri

from ..flow.ansatz import AbstractAnsatz
from ..sde.laws import AbstractLaw
from ..sde.quasi_random import UnitCube, strictly_inside
from ..source.gaussian_source import AbstractGaussianSource
from ..source.tabulated import TabulatedSource, with_frame
from .devices import Layout

# Forcings above this multiple of their median are down-weighted. No other value was tried; Beneš
# gives the same result bit for bit with and without it.
_FAR = 20.0
# Points evaluated together: their intermediate values should fit in the processor cache.
CACHED = 512


class Draws(eqx.Module):
    """Conditioning vectors and noise, one row per draw, and the weight of each in a mean."""

    x0: Float[Array, "n d+k"]
    noise: Float[Array, "n d"]
    weight: Float[Array, " n"]
    layout: Layout = eqx.field(static=True, default=Layout())


class Points(eqx.Module):
    """Conditioning vectors, and samples of the density in the coordinates of the ansatz."""

    x0: Float[Array, "n d+k"]
    y: Float[Array, "n d"]
    weight: Float[Array, " n"]
    layout: Layout = eqx.field(static=True, default=Layout())


@eqx.filter_jit
def place(
    ansatz: AbstractAnsatz, theta: Float[Array, " m"], clock: Float[Array, ""], draws: Draws
) -> Points:
    """Return the points to which the ansatz with parameters `theta` maps the draws."""
    at_theta = ansatz.at(theta)
    y = draws.layout.each(eqx.Partial(_placed, at_theta, clock), draws.x0, draws.noise)
    return Points(draws.x0, y, draws.weight, draws.layout)


def _placed(ansatz: AbstractAnsatz, clock: Array, x0: Array, noise: Array) -> Array:
    return jax.vmap(lambda x0, noise: ansatz.place(noise, clock, x0))(x0, noise)


def sharing_frames(program: Any) -> Any:
    """Return a program of `ansatz, theta, clock, points, ...` that shares frames with others.

    Where frames take long to compute, the program receives them with the points.
    """

    def with_frames(ansatz: Any, theta: Array, clock: Array, points: Points) -> tuple:
        source = ansatz.source
        if source.integrates:
            ansatz = eqx.tree_at(lambda a: a.source, ansatz, TabulatedSource(source))
            x0 = _framed(source, clock, points)
            points = Points(x0, points.y, points.weight, points.layout)
        return ansatz, theta, clock, points

    @functools.wraps(program)
    def call(ansatz: Any, theta: Array, clock: Array, points: Points, *rest: Any) -> Any:
        return program(*with_frames(ansatz, theta, clock, points), *rest)

    # For compilation in another thread, where frames must not be computed.
    call.program, call.with_frames = program, with_frames  # type: ignore[attr-defined]
    return call


# The last conditioning vectors with frames, after what they were computed from.
_LAST: list[Any] = [None, None, None, None]


def _framed(source: AbstractGaussianSource, clock: Array, points: Points) -> Array:
    if isinstance(clock, jax.core.Tracer):
        return _with_frames(source, clock, points)
    time = float(clock)
    if not (_LAST[0] is source and _LAST[1] == time and _LAST[2] is points.x0):
        _LAST[:] = source, time, points.x0, _with_frames(source, clock, points)
    return _LAST[3]


@eqx.filter_jit
def _with_frames(source: AbstractGaussianSource, clock: Array, points: Points) -> Array:
    return points.layout.each(eqx.Partial(_frame_rows, source, clock), points.x0)


def _frame_rows(source: AbstractGaussianSource, clock: Array, x0: Array) -> Array:
    return jax.lax.map(lambda start: with_frame(source, clock, start), x0, batch_size=CACHED)


def laid_out(draws: Draws, layout: Layout) -> Draws:
    """Return the draws, distributed over the devices of a layout.

    If their number is not divisible by the number of devices, some draws are repeated with weight
    zero. The weights of the others are increased, so that means over all rows do not change.
    """
    if layout.mesh is None:
        return Draws(draws.x0, draws.noise, draws.weight, layout)
    x0, noise, weight = map(np.asarray, (draws.x0, draws.noise, draws.weight))
    n, more = len(weight), layout.padding(len(weight))
    if more:
        again = np.arange(more) % n
        x0, noise = (np.concatenate([rows, rows[again]]) for rows in (x0, noise))
        weight = np.concatenate([weight * ((n + more) / n), np.zeros(more)])
    return Draws(layout.divide(x0), layout.divide(noise), layout.divide(weight), layout)


@eqx.filter_jit
def tempered(points: Points, forcing: Float[Array, " n"]) -> Points:
    """Return the points with smaller weights where the forcing is unusually large.

    If the tails of the flow are wrong, a few points far out have forcings a thousand times larger
    than the others, and dominate the fit. Any positive weights define a valid projection; accuracy
    in the bulk is what matters.
    """
    counts = points.weight > 0  # other points are padding
    size = jnp.where(counts, jnp.abs(forcing) / jnp.sqrt(points.weight), jnp.nan)
    usual = jnp.maximum(jnp.nanmedian(size), 1e-300)
    weight = points.weight / jnp.where(counts, jnp.maximum(size / (_FAR * usual), 1.0), 1.0) ** 2
    return Points(points.x0, points.y, weight / jnp.mean(weight), points.layout)


def per_point(function: Callable, clock: Float[Array, ""], points: Points) -> Any:
    """Return `function(y, clock, x0)` at every point; see `Layout.each` for its arrays."""
    return points.layout.each(eqx.Partial(per_row, function, clock), points.y, points.x0)


def per_row(
    function: Callable, clock: Float[Array, ""], y: Float[Array, "n d"], x0: Float[Array, "n d+k"]
) -> Any:
    """Return `function(y, clock, x0)` for every row, evaluated in batches."""
    return jax.lax.map(
        lambda point: function(point[0], clock, point[1]), (y, x0), batch_size=CACHED
    )


def evaluate_log_density(
    ansatz: AbstractAnsatz, clock: Float[Array, ""], points: Points
) -> Float[Array, " n"]:
    """Return the log-density at every point, up to terms without parameters."""
    return per_point(ansatz.log_density, clock, points)


def centred(values: Any, points: Points) -> Any:
    """Return values minus their weighted mean, times the square roots of the weights."""
    weight = points.weight

    def one(v: Array) -> Array:
        mean = jnp.tensordot(weight, v, 1) / len(weight)
        return (v - mean[None]) * jnp.sqrt(weight).reshape(-1, *(1,) * (v.ndim - 1))

    return jax.tree.map(one, values)


def draw(
    cube: UnitCube,
    key: PRNGKeyArray,
    starts: AbstractLaw,
    dim: int,
    samples: int,
    effective_share: float,
) -> Draws:
    """Return joint draws of conditioning vectors and noise, from points of one unit cube.

    Draws in the tails have a large influence on a least-squares fit. Draws are therefore taken from
    a wider law, and importance weights compensate. `effective_share` is the effective sample size
    of the weights, divided by `samples`.
    """
    conditioning_dim = starts.dim or dim
    factor = widening(effective_share, conditioning_dim + dim)
    normal = factor * ndtri(cube(key, samples, conditioning_dim + dim))
    weight = np.exp(-0.5 * (1 - factor**-2) * np.sum(normal**2, axis=1))
    x0 = starts.transport(strictly_inside(ndtr(normal[:, :conditioning_dim])))
    return Draws(x0, jnp.asarray(normal[:, conditioning_dim:]), jnp.asarray(weight / weight.mean()))


def draw_noise(
    cube: UnitCube,
    key: PRNGKeyArray,
    x0: Float[Array, "n d+k"],
    dim: int,
    effective_share: float,
) -> Draws:
    """Return draws of noise for given conditioning vectors; see `draw`."""
    factor = widening(effective_share, dim)
    normal = factor * ndtri(cube(key, len(x0), dim))
    weight = np.exp(-0.5 * (1 - factor**-2) * np.sum(normal**2, axis=1))
    return Draws(x0, jnp.asarray(normal), jnp.asarray(weight / weight.mean()))


def widening(effective_share: float, dim: int) -> float:
    r"""Return the factor $s$ by which to widen a standard normal law in `dim` dimensions.

    Importance weights from $N(0, s^2)$ to $N(0, 1)$ have the relative effective sample size
    $E[w]^2/E[w^2] = \sqrt{2s^2-1}/s^2$ in each dimension.
    """
    each = effective_share ** (1 / dim)
    return float(np.sqrt((1 + np.sqrt(1 - each**2)) / each**2))
