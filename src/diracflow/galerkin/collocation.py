r"""Points at which the Fokker--Planck residual is asked to vanish.

A draw is a start point $x_0\sim\mu$, with the parameters of the SDE and the time of the start
behind it where these vary, and standard normal noise $\xi$; the current flow carries the
noise to a point $x$ of the current density, so the residual is tested where the mass is. The pairs
$(x_0, \xi)$ are kept while $\theta$ moves within a step and drawn again for the next.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.special import ndtr, ndtri

from ..flow.ansatz import AbstractAnsatz
from ..sde.laws import AbstractLaw
from ..sde.quasi_random import UnitCube, strictly_inside
from .devices import Layout

# Times the median size of a forcing: what is larger counts as if it were this large. The only value
# tried; Beneš ends in the same bits with it as without.
_FAR = 20.0


class Draws(eqx.Module):
    """Start points and latent noise, one row each, and what each counts in a mean."""

    x0: Float[Array, "n d+k"]
    noise: Float[Array, "n d"]
    weight: Float[Array, " n"]
    layout: Layout = eqx.field(static=True, default=Layout())


class Points(eqx.Module):
    """Start points, and points of the density in the coordinates of the ansatz."""

    x0: Float[Array, "n d+k"]
    y: Float[Array, "n d"]
    weight: Float[Array, " n"]
    layout: Layout = eqx.field(static=True, default=Layout())


@eqx.filter_jit
def place(
    ansatz: AbstractAnsatz, theta: Float[Array, " m"], clock: Float[Array, ""], draws: Draws
) -> Points:
    """The points of the density with parameters `theta` to which the draws are carried."""
    at_theta = ansatz.at(theta)
    y = draws.layout.each(eqx.Partial(_placed, at_theta, clock), draws.x0, draws.noise)
    return Points(draws.x0, y, draws.weight, draws.layout)


def _placed(ansatz: AbstractAnsatz, clock: Array, x0: Array, noise: Array) -> Array:
    return jax.vmap(lambda x0, noise: ansatz.place(noise, clock, x0))(x0, noise)


def laid_out(draws: Draws, layout: Layout) -> Draws:
    """The same draws where a layout has them.

    Where they do not divide evenly over the devices, some are repeated with a weight of zero; the
    others weigh more, so that means over all rows stay what they were.
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
    """The points, weighted so that none has a forcing far beyond the usual.

    Where a flow's tails are not yet those of the density, few points far out have forcings a
    thousand times those of the others, and a fit over all points serves these few. Any positive
    weights define a projection; the bulk is what matters.

    **Arguments:**

    - `forcing`: at the points, centred and scaled by their weights, as `assembly.evaluate` gives
        it.
    """
    counts = points.weight > 0  # others only fill up the last device
    size = jnp.where(counts, jnp.abs(forcing) / jnp.sqrt(points.weight), jnp.nan)
    usual = jnp.maximum(jnp.nanmedian(size), 1e-300)
    weight = points.weight / jnp.where(counts, jnp.maximum(size / (_FAR * usual), 1.0), 1.0) ** 2
    return Points(points.x0, points.y, weight / jnp.mean(weight), points.layout)


def draw(
    cube: UnitCube,
    key: PRNGKeyArray,
    starts: AbstractLaw,
    dim: int,
    samples: int,
    effective_share: float,
) -> Draws:
    """`samples` joint draws of `starts` and of noise in `dim`, from points of one unit cube.

    A draw far out has more say in a least-squares fit than its neighbours can check. So draws reach
    further out than their laws do, by a factor on the scale of the normal law, and weights make up
    for it: as far as these leave `effective_share` of the draws effective.
    """
    given = starts.dim or dim
    factor = widening(effective_share, given + dim)
    normal = factor * ndtri(cube(key, samples, given + dim))
    weight = np.exp(-0.5 * (1 - factor**-2) * np.sum(normal**2, axis=1))
    x0 = starts.transport(strictly_inside(ndtr(normal[:, :given])))
    return Draws(x0, jnp.asarray(normal[:, given:]), jnp.asarray(weight / weight.mean()))


def widening(effective_share: float, dim: int) -> float:
    r"""The factor $s$ by which to widen a standard normal law in `dim` dimensions.

    Weights from $N(0, s^2)$ to $N(0, 1)$ have the effective share
    $E[w]^2/E[w^2] = \sqrt{2s^2-1}/s^2$ in each dimension.
    """
    each = effective_share ** (1 / dim)
    return float(np.sqrt((1 + np.sqrt(1 - each**2)) / each**2))
