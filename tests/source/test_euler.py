import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from helpers import EXACT_MODELS

each_model = pytest.mark.parametrize("model, order", EXACT_MODELS.values(), ids=EXACT_MODELS)


@each_model
def test_log_density_error_has_the_known_order(model, order, getkey):
    dim, source = model.sde.dim, df.EulerSource(model.sde)
    # Near the centre of the law, or the tails set the slope.
    x0 = 0.5 * jr.normal(getkey(), (dim,))
    zs = jr.normal(getkey(), (64, dim))
    taus = 2.0 ** -jnp.arange(10.0, 16.0)

    def error(tau, z):
        x = source.from_noise(z, tau, x0)
        return source.log_prob(x, tau, x0) - model.exact.log_prob(x, tau, x0)

    errors = jax.jit(jax.vmap(jax.vmap(error, (None, 0)), (0, None)))(taus, zs)
    rms = jnp.sqrt(jnp.mean(errors**2, axis=1))
    if order is None:  # constant coefficients: the Euler step is exact
        assert rms.max() < 1e-10
        return
    slope, _ = np.polyfit(np.log(taus), np.log(rms), 1)
    # One z alone can sit on a zero of the leading term; 64 of them average it out.
    assert abs(slope - order) < 0.05


def test_density_is_that_of_its_noise(getkey):
    source = df.EulerSource(df.models.sheared(4).sde)
    x0, noise = jr.normal(getkey(), (2, 4))
    tau = jnp.array(0.3)
    log_det = jnp.linalg.slogdet(jax.jacfwd(source.from_noise)(noise, tau, x0))[1]
    expected = -0.5 * noise @ noise - 2 * jnp.log(2 * jnp.pi) - log_det
    x = source.from_noise(noise, tau, x0)
    np.testing.assert_allclose(source.log_prob(x, tau, x0), expected, rtol=1e-12)


def test_time_derivative_against_differences(getkey):
    source = df.EulerSource(df.models.benes().sde)
    x0, x = jr.normal(getkey(), (2, 2))
    step = 1e-5
    slope = jax.grad(source.log_prob, argnums=1)(x, jnp.array(0.5), x0)
    ends = [source.log_prob(x, jnp.array(0.5 + s), x0) for s in (step, -step)]
    np.testing.assert_allclose(slope, (ends[0] - ends[1]) / (2 * step), rtol=1e-6)


def test_start_time_sets_the_coefficients():
    sde = df.SDE(lambda t, x: t * jnp.ones(2), lambda t, x: (1 + t) * jnp.eye(2), 2)
    source = df.EulerSource(sde, 2.0)
    frame = source.frame(jnp.array(0.25), jnp.zeros(2))
    np.testing.assert_allclose(frame.mean, [0.5, 0.5])
    np.testing.assert_allclose(frame.factor, 3 * 0.5 * np.eye(2))


def test_source_is_a_transition_density_of_its_own(getkey):
    density = df.SourceDensity(df.EulerSource(df.models.benes().sde))
    assert density.sample(getkey(), 0.1, np.zeros(2), (3,)).shape == (3, 2)
    assert density.log_prob(np.zeros((4, 2)), 0.1, np.zeros(2)).shape == (4,)
