import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import ks_2samp

import diracflow as df
from helpers import EXACT_MODELS

each_model = pytest.mark.parametrize("model, order", EXACT_MODELS.values(), ids=EXACT_MODELS)


@each_model
def test_chapman_kolmogorov(model, order, getkey):
    # Going t/2 twice gives the law at t; compare a projection of both samples.
    exact, n = model.exact, 4000
    x0 = np.full(model.sde.dim, 0.4)
    halfway = exact.sample(getkey(), 0.35, x0, (n,))
    twice = np.asarray(exact.sample(getkey(), 0.35, halfway))
    once = np.asarray(exact.sample(getkey(), 0.7, x0, (n,)))
    # Two-sample Kolmogorov-Smirnov: a correct sampler fails for one key in ten thousand.
    for component in range(model.sde.dim):
        assert ks_2samp(once[:, component], twice[:, component]).pvalue > 1e-4


@each_model
def test_samples_follow_the_density(model, order, getkey):
    # E_rho[g / rho] = 1 for any density g that rho dominates; here g is a narrower Gaussian.
    exact, dim, t, n = model.exact, model.sde.dim, 0.5, 20_000
    x0 = np.full(dim, -0.3)
    x = np.asarray(exact.sample(getkey(), t, x0, (n,)))
    g = df.Normal(x.mean(axis=0), 0.5 * x.std(axis=0))
    ratios = np.exp(np.asarray(g.log_prob(x) - exact.log_prob(x, t, x0)))
    assert abs(ratios.mean() - 1) < 5 * ratios.std() / np.sqrt(n)


def test_linear_covariance_with_fast_and_slow_rates():
    # Diagonal rates have the covariance (1 - exp(-2 a t)) / (2 a) on the diagonal.
    rates = np.array([0.1, 1.0, 20.0])
    exact = df.models.ornstein_uhlenbeck(3, rate=rates).exact
    _, factor = exact._at_time(jnp.array(10.0))
    expected = (1 - np.exp(-20 * rates)) / (2 * rates)
    # Rounding grows with the 2**10 doublings.
    np.testing.assert_allclose(jnp.diag(factor @ factor.T), expected, rtol=1e-11)


def test_benes_weights_favour_the_nearer_side():
    exact = df.models.benes(angle=0.0).exact
    up, down = exact.log_prob(np.array([[4.0, 0.0], [-4.0, 0.0]]), 3.0, np.array([1.0, 0.0]))
    # Mixture weights e^{y0} : e^{-y0} and equal Gaussians about y0 +- t.
    expected = np.log(np.exp(1 - 0 / 6) + np.exp(-1 - 36 / 6)) - np.log(
        np.exp(1 - 64 / 6) + np.exp(-1 - 4 / 6)
    )
    np.testing.assert_allclose(up - down, expected, rtol=1e-10)


def test_unknown_model_is_named():
    with pytest.raises(ValueError, match="'lorenz'.*benes"):
        df.models.model("lorenz")
