r"""Comparison of a density with simulated paths.

Draws from the density are compared with end points of Euler--Maruyama paths: means and covariances
in units of their standard errors, and the energy distance with a permutation test.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from ..density.learned import LearnedDensity
from ..sde.argument_checks import checked_count, checked_key, checked_one_point
from ..sde.chart import Chart
from ..sde.parameters import Params
from ..sde.sde import SDE
from ..uses.underlying_sde import began_at, member_of, scalars

_PERMUTATIONS = 200


class Agreement(NamedTuple):
    """Differences between draws of a density and simulated end points."""

    mean_z: float  # largest difference between means of a component, in standard errors
    covariance_z: float  # the same for entries of the covariance
    energy: float  # energy distance between the two samples
    energy_noise: float  # its mean under random permutations of both samples
    energy_stderr: float  # its standard deviation under these permutations
    paths: int
    steps: int

    @property
    def energy_z(self) -> float:
        """Excess of the energy distance over `energy_noise`, in units of `energy_stderr`."""
        return (self.energy - self.energy_noise) / self.energy_stderr


def agreement_with_paths(
    density: LearnedDensity,
    key: PRNGKeyArray,
    t: float,
    x0: Float[np.ndarray, " d"],
    *,
    paths: int = 2000,
    steps: int = 1000,
    params: Params | None = None,
    start_time: float | None = None,
) -> Agreement:
    """Compare draws of a density with end points of Euler--Maruyama paths.

    **Arguments:**

    - `density`: a learned density.
    - `key`: a random key.
    - `t`, `x0`: one time and one start.
    - `paths`: number of paths, and of draws.
    - `steps`: number of Euler--Maruyama steps.
    - `params`, `start_time`: as in the density's queries.
    """
    path_key, draw_key = jr.split(checked_key(key))
    checked_count("paths", paths, least=2)
    checked_count("steps", steps)
    checked_one_point("x0", x0, density.dim)
    began = began_at(density, start_time, "start_time")
    with jax.enable_x64(True):
        member = member_of(density.sde, scalars(density, params))
        # In unconstrained coordinates, so that no step leaves the domain.
        chart = Chart(member, density.chart.maps)
        y0 = chart.start(jnp.asarray(x0, float))
        ends = euler_maruyama(chart.equation(), path_key, y0, t, began, paths, steps)
        ends = jax.vmap(chart.from_real)(ends)
        draws = density.sample(draw_key, t, x0, paths, params, start_time=start_time)
        a, b = np.asarray(ends), np.asarray(draws)
    if not np.all(np.isfinite(a)):
        raise ValueError(
            f"Simulated paths from {np.asarray(x0).tolist()} are not finite at t={t:g}: "
            f"{steps} Euler--Maruyama steps are too few for this drift. Increase `steps`."
        )
    energy, noise, spread = _energy(a, b)
    z = _largest_z(a, b), _largest_z(_products(a), _products(b))
    return Agreement(*z, energy, noise, spread, paths=paths, steps=steps)


@eqx.filter_jit
def euler_maruyama(
    sde: SDE,
    key: PRNGKeyArray,
    x0: Float[ArrayLike, " d"],
    t: float,
    start_time: float,
    paths: int,
    steps: int,
) -> Float[Array, "paths d"]:
    """Return the end points of paths from `x0` at time `start_time`, after a time `t`."""
    length = jnp.asarray(t) / steps

    def step(x: Array, index: Array) -> tuple[Array, None]:
        time = start_time + index * length
        noise = jr.normal(jr.fold_in(key, index), (paths, sde.noise_dim))

        def one(x: Array, noise: Array) -> Array:
            return x + sde.drift(time, x) * length + sde.diffusion(time, x) @ noise * length**0.5

        return jax.vmap(one)(x, noise), None

    start = jnp.broadcast_to(jnp.asarray(x0, float), (paths, sde.dim))
    return jax.lax.scan(step, start, jnp.arange(steps))[0]


def _products(x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n k"]:
    centred = x - x.mean(axis=0)
    rows, columns = np.triu_indices(x.shape[1])
    return centred[:, rows] * centred[:, columns]


def _largest_z(a: np.ndarray, b: np.ndarray) -> float:
    stderr = np.sqrt(a.var(axis=0) / len(a) + b.var(axis=0) / len(b))
    return float(np.max(np.abs(a.mean(axis=0) - b.mean(axis=0)) / stderr))


def _energy(a: np.ndarray, b: np.ndarray) -> tuple[float, float, float]:
    """Return the energy distance, and its mean and standard deviation under permutations."""
    both = np.concatenate([a, b]) / np.std(b, axis=0)
    squares = (both**2).sum(axis=1)
    gaps = np.sqrt(np.maximum(squares[:, None] + squares[None] - 2 * both @ both.T, 0.0))
    signs = np.repeat([1.0, -1.0], [len(a), len(b)])
    rng = np.random.default_rng(0)
    permuted = np.stack([rng.permutation(signs) for _ in range(_PERMUTATIONS)])
    # For samples of equal size the distance is a quadratic form in the signs.
    found = -signs @ gaps @ signs / len(a) ** 2
    noise = -np.einsum("ki,ki->k", permuted @ gaps, permuted) / len(a) ** 2
    return float(found), float(noise.mean()), float(noise.std())
