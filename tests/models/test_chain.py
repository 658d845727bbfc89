"""The chain of double wells is the gradient of its potential."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import diracflow as df


def potential(x, height, coupling):
    return height / 4 * jnp.sum((x**2 - 1) ** 2) + coupling / 2 * jnp.sum(jnp.diff(x) ** 2)


@pytest.mark.parametrize("dim", [1, 2, 7])
def test_the_drift_is_minus_the_gradient_of_the_potential(dim, getkey):
    sde = df.models.double_well_chain(dim, height=1.3, coupling=0.6).sde
    x = jr.normal(getkey(), (dim,))
    expected = -jax.grad(potential)(x, 1.3, 0.6)
    # The same polynomial by autodiff: rounding only.
    np.testing.assert_allclose(sde.drift(jnp.zeros(()), x), expected, rtol=1e-12, atol=1e-12)


def test_the_gibbs_density_is_at_rest(getkey):
    """exp(-2V / sigma^2) solves the Fokker--Planck equation with no change in time."""
    sde = df.models.double_well_chain(5, height=0.8, coupling=1.7, noise=0.9).sde
    x = jr.normal(getkey(), (5,))
    gibbs = lambda y: -2 * potential(y, 0.8, 1.7) / 0.9**2
    rate = df.log_density_rate(sde, gibbs, jnp.zeros(()), x)
    # Terms of size up to a hundred cancel.
    np.testing.assert_allclose(rate, 0.0, atol=1e-11)


def test_without_coupling_sites_are_independent(getkey):
    x = jr.normal(getkey(), (4,))
    chain = df.models.double_well_chain(4, coupling=0.0).sde
    site = df.models.double_well_chain(1).sde
    alone = jnp.concatenate([site.drift(jnp.zeros(()), x[i : i + 1]) for i in range(4)])
    np.testing.assert_allclose(chain.drift(jnp.zeros(()), x), alone, rtol=1e-14)
