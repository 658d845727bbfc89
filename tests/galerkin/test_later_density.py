"""The log-density at a later time by the Chapman--Kolmogorov equation, against exact densities."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from diracflow.flow.ansatz import StandardisedAnsatz
from diracflow.flow.coupling_flow import IdentityFlow
from diracflow.galerkin.later_density import DensityAt, later_log_density
from diracflow.sde.quasi_random import sobol

KERNEL, CURRENT = 0.2, 0.7


def exact_at(sde, tau):
    """Return the density of a linear SDE: its source."""
    dim = sde.dim
    ansatz = StandardisedAnsatz(df.MomentSource(sde), IdentityFlow(), np.zeros(dim), np.eye(dim))
    return DensityAt(ansatz, jnp.asarray(tau))


def later_errors(sde, pairs, points):
    """Return errors of the log-density at draws of the later law."""
    kernel, current, later = (exact_at(sde, t) for t in (KERNEL, CURRENT, KERNEL + CURRENT))
    dim = sde.dim
    cube = jnp.asarray(sobol(jr.key(0), points, dim))

    def one(key):
        start_key, noise_key, shift_key = jr.split(key, 3)
        x0, shift = jr.normal(start_key, (dim,)), jr.uniform(shift_key, (dim,))
        x = later.ansatz.from_noise(jr.normal(noise_key, (dim,)), later.tau, x0)
        shifted = jnp.mod(cube + shift[None], 1.0)
        return later_log_density(kernel, current, x, x0, shifted) - later.to_noise(x, x0)[1]

    return np.asarray(jax.jit(jax.vmap(one))(jr.split(jr.key(1), pairs)))


@pytest.mark.parametrize("dim", [1, 3])
def test_two_steps_of_a_linear_sde_make_one(dim):
    sde = df.models.ornstein_uhlenbeck(dim).sde
    few, many = (later_errors(sde, 256, points) for points in (16, 256))
    # Proposals are wider by 1.1. One independent draw would have a relative variance of
    # (1.21 / sqrt(2 * 1.21 - 1))**dim - 1, that is 0.015 and 0.047.
    variance = (1.21 / np.sqrt(2 * 1.21 - 1)) ** dim - 1
    assert np.sqrt(np.mean(few**2)) < np.sqrt(variance / 32)
    # Randomly shifted Sobol points do better than independent draws: 16 times as many, far less
    # than a quarter of the error.
    assert np.sqrt(np.mean(many**2)) < 0.1 * np.sqrt(np.mean(few**2))


def test_the_peak_is_found_where_noise_is_small():
    """With a thousandth of the noise, a guess that is not moved to the peak has no weight."""
    sde = df.SDE(lambda t, x: jnp.array([x[1], -x[0]]), [1e-3, 1e-3])
    errors = later_errors(sde, 64, 64)
    assert np.max(np.abs(errors)) < 0.05
