"""Marginals of Heston's model against independent results."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import kstest, ncx2, norm

import diracflow as df
from diracflow.evaluate import HestonMarginals, marginals
from diracflow.sde.chart import Chart
from diracflow.sde.heun import heun_paths

LAW = HestonMarginals(rate=2.0, level=0.09, noise=0.3, correlation=-0.6, drift=0.05)
X0 = np.array([0.1, 0.12])


def covering(t, width=20.0, law=LAW):
    """Return points within some standard deviations of the mean, and their spacing."""
    deviation = np.sqrt(law.integrated_variance(t, X0[1]))
    offsets, step = np.linspace(-width, width, 4001, retstep=True)
    return law.mean(t, X0) + deviation * offsets, deviation * step


@pytest.mark.parametrize("t", [1e-3, 0.01, 0.5, 5.0])
def test_unit_mass_mean_and_price(t):
    x, step = covering(t)
    p = LAW.log_price(x, t, X0)
    # Trapezoidal sums of an analytic function, up to rounding and the tails beyond 20 deviations.
    np.testing.assert_allclose(p.sum() * step, 1.0, atol=1e-9)
    np.testing.assert_allclose(p @ x * step, LAW.mean(t, X0), atol=1e-9)
    # The price grows at the rate of the drift, whatever the variance does.
    np.testing.assert_allclose(p @ np.exp(x) * step, np.exp(X0[0] + 0.05 * t), rtol=1e-7)
    assert p.min() > -1e-12 * p.max()


@pytest.mark.parametrize("noise", [1e-3, 1e-6, 1e-9])
def test_little_noise_of_the_variance_leaves_a_gaussian(noise):
    law = HestonMarginals(2.0, 0.09, noise, -0.6)
    x, _ = covering(0.5, 5.0, law)
    spread = law.integrated_variance(0.5, X0[1])
    expected = norm.pdf(x, law.mean(0.5, X0), np.sqrt(spread))
    # The skewness is proportional to the noise, with a factor below one; and rounding.
    np.testing.assert_allclose(law.log_price(x, 0.5, X0), expected, atol=2 * noise + 1e-12)


def test_characteristic_function_is_that_of_the_equation():
    # d/dt E f(X, V) = E (generator f): for f = exp(iuX + D V + C) it is a Riccati equation in time,
    # here by central differences of logarithms, whose derivative in the variance is D.
    u, t, h = 3.0, 0.4, 1e-4
    log = lambda t, v: np.log(LAW.characteristic(u, t, [0.0, v]))
    rate = (log(t + h, 0.1) - log(t - h, 0.1)) / (2 * h)
    slope = (log(t, 0.1 + h) - log(t, 0.1 - h)) / (2 * h)
    drift = 1j * u * (0.05 - 0.1 / 2) + 2.0 * (0.09 - 0.1) * slope
    noise = 0.1 / 2 * (-(u**2) + 2 * 1j * u * -0.6 * 0.3 * slope + 0.09 * slope**2)
    # The error is h squared times third derivatives of about ten.
    np.testing.assert_allclose(rate, drift + noise, atol=1e-6)


def test_it_agrees_with_paths(getkey):
    model = df.models.heston(drift=0.05)
    chart = Chart(model.sde, (df.Real(), df.Positive(0.5, 0.09)))
    y0 = chart.to_real(jnp.asarray(X0))
    starts = jnp.tile(y0, (2000, 1))
    [ends] = heun_paths(chart.equation(), 0.0, getkey(), starts, jnp.array([0.5]), 200)
    prices, variances = np.asarray(jax.vmap(chart.from_real)(ends)).T
    x, step = covering(0.5, 10.0)
    cdf = np.cumsum(LAW.log_price(x, 0.5, X0)) * step
    # Two thousand paths resolve a distance of 0.03; the error of two hundred steps is below
    # a tenth of that. One correct key in ten thousand fails.
    assert kstest(prices, lambda p: np.interp(p, x, cdf)).pvalue > 1e-4
    c = 4 / (0.09 * -np.expm1(-1.0))
    law = ncx2(4 * 2 * 0.09 / 0.09, 2 * c * X0[1] * np.exp(-1.0), scale=1 / (2 * c))
    assert kstest(variances, law.cdf).pvalue > 1e-4
    np.testing.assert_allclose(LAW.variance([0.1], 0.5, X0), law.pdf([0.1]), rtol=1e-10)


def test_marginals_of_independent_components():
    both, one = df.models.benes(0.0).exact, df.models.benes(dim=1).exact
    x0, t = np.array([0.3, -0.2]), 2.0
    for start, part in zip(x0, marginals(both, t, x0, grid=97), strict=True):
        # Trapezoidal sums of analytic functions; the tails beyond seven deviations are below 1e-8.
        np.testing.assert_allclose(part.weights @ part.prob, 1.0, atol=1e-7)
        assert part.squared_l2(np.asarray(one.prob(part.x[:, None], t, [start]))) < 1e-12


BAD = {
    "no noise": (lambda: HestonMarginals(noise=0.0), "`noise` must be positive"),
    "correlation": (lambda: HestonMarginals(correlation=-1.0), "between -1 and 1"),
    "negative variance": (lambda: LAW.log_price([0.0], 0.5, [0.0, -0.1]), "positive variance"),
    "one number": (lambda: LAW.variance([0.1], 0.5, [0.1]), "positive variance"),
    "time": (lambda: LAW.mean(0.0, X0), "`t` must be a positive"),
    "one component": (lambda: marginals(df.ExactCIR(), 0.5, [0.3]), "two components"),
}


@pytest.mark.parametrize("make, message", BAD.values(), ids=BAD)
def test_mistakes(make, message):
    with pytest.raises(ValueError, match=message):
        make()
