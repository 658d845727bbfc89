import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from helpers import EXACT_MODELS

each_model = pytest.mark.parametrize("model, order", EXACT_MODELS.values(), ids=EXACT_MODELS)


@each_model
def test_exact_density_solves_fokker_planck(model, order, getkey):
    exact, dim = model.exact, model.sde.dim
    x0, z = jr.normal(getkey(), (2, dim))
    t = jnp.array(0.7)
    x = x0 + jnp.sqrt(t) * z

    @jax.jit
    def both(x, t):
        rate = df.log_density_rate(model.sde, lambda y: exact.log_prob(y, t, x0), t, x)
        return rate, jax.grad(lambda t: exact.log_prob(x, t, x0))(t)

    rate, dq_dt = both(x, t)
    # Exact derivatives of closed forms on both sides: only float64 rounding differs.
    np.testing.assert_allclose(rate, dq_dt, rtol=1e-9, atol=1e-9)


def test_time_enters_the_coefficients(getkey):
    # dX = a(t) dt + s(t) dW has a Gaussian density with integrated coefficients.
    sde = df.SDE(lambda t, x: jnp.cos(t)[None], lambda t, x: jnp.exp(-t)[None, None], 1)

    def log_density(x, t):
        variance = (1 - jnp.exp(-2 * t)) / 2
        return -((x[0] - jnp.sin(t)) ** 2) / (2 * variance) - 0.5 * jnp.log(variance)

    x, t = jr.normal(getkey(), (1,)), jnp.array(0.9)
    rate = df.log_density_rate(sde, lambda y: log_density(y, t), t, x)
    np.testing.assert_allclose(rate, jax.grad(log_density, argnums=1)(x, t), rtol=1e-10)


def test_more_noise_columns_than_components(getkey):
    # sigma of shape (2, 3) and its 2 x 2 Cholesky factor describe the same process.
    sigma = jr.normal(getkey(), (2, 3))
    factor = jnp.linalg.cholesky(sigma @ sigma.T)
    wide = df.SDE(lambda t, x: -x, lambda t, x: sigma * (1 + x[0] ** 2), 2)
    square = df.SDE(lambda t, x: -x, lambda t, x: factor * (1 + x[0] ** 2), 2)
    x, t = jr.normal(getkey(), (2,)), jnp.array(0.1)
    rates = [df.log_density_rate(s, lambda y: -jnp.sum(y**4), t, x) for s in (wide, square)]
    np.testing.assert_allclose(rates[0], rates[1], rtol=1e-12)
