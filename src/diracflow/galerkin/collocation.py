r"""Points at which the Fokker--Planck residual is asked to vanish.

A draw is a start point $x_0\sim\mu$ and standard normal noise $\xi$; the current flow carries the
noise to a point $x$ of the current density, so the residual is tested where the mass is. The pairs
$(x_0, \xi)$ are kept while $\theta$ moves within a step and drawn again for the next.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.special import ndtri
from scipy.stats import qmc

from ..flow.ansatz import AbstractAnsatz
from ..problem.laws import AbstractLaw

UnitCube = Callable[[PRNGKeyArray, int, int], np.ndarray]


class Draws(eqx.Module):
    """Start points and latent noise, one row each."""

    x0: Float[Array, "n d"]
    noise: Float[Array, "n d"]


class Points(eqx.Module):
    """Start points, and points of the density in the coordinates of the ansatz."""

    x0: Float[Array, "n d"]
    y: Float[Array, "n d"]


@eqx.filter_jit
def place(
    ansatz: AbstractAnsatz, theta: Float[Array, " m"], clock: Float[Array, ""], draws: Draws
) -> Points:
    """The points of the density with parameters `theta` to which the draws are carried."""
    at_theta = ansatz.at(theta)
    y = jax.vmap(lambda x0, noise: at_theta.place(noise, clock, x0))(draws.x0, draws.noise)
    return Points(draws.x0, y)


def draw(cube: UnitCube, key: PRNGKeyArray, starts: AbstractLaw, dim: int, samples: int) -> Draws:
    """`samples` joint draws of start and noise from points of the unit cube in `2 * dim`."""
    u = cube(key, samples, 2 * dim)
    return Draws(_carry(starts, jnp.asarray(u[:, :dim])), jnp.asarray(ndtri(u[:, dim:])))


def sobol(key: PRNGKeyArray, samples: int, dim: int) -> np.ndarray:
    """Scrambled Sobol points: their error in a mean falls nearly as 1/n."""
    engine = qmc.Sobol(dim, rng=_generator(key))
    return _inside(engine.random_base2(int(np.ceil(np.log2(samples))))[:samples])


def montecarlo(key: PRNGKeyArray, samples: int, dim: int) -> np.ndarray:
    """Independent uniform points."""
    return _inside(_generator(key).random((samples, dim)))


CUBES: dict[str, UnitCube] = {"sobol": sobol, "montecarlo": montecarlo}


@eqx.filter_jit
def _carry(starts: AbstractLaw, u: Float[Array, "n d"]) -> Float[Array, "n d"]:
    return jax.vmap(starts.from_uniform)(u)


def _generator(key: PRNGKeyArray) -> np.random.Generator:
    return np.random.default_rng(np.asarray(jr.bits(key, (4,), dtype=jnp.uint32)))


def _inside(u: np.ndarray) -> np.ndarray:
    # Scrambled points can fall on the faces of the cube, where the normal quantile is infinite.
    return np.clip(u, 1e-12, 1 - 1e-12)
