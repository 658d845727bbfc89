"""The Cox-Ingersoll-Ross density against SciPy and its own samples."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import special
from scipy.stats import gamma, kstest, ncx2, norm

import diracflow as df
from diracflow.models.square_root import gamma_quantile, log_scaled_bessel

CIR = df.ExactCIR()
PARAMS = {"rate": 3.0, "level": 0.3, "noise": 0.2}  # 90 degrees of freedom
LOW = {"rate": 1.0, "level": 0.1, "noise": 0.5}  # 1.6: zero is reached
X0 = np.array([0.25])


def chi_square(t, params, x0=0.25):
    """SciPy's law of X(t)."""
    rate, level, noise = params.values()
    c = 2 * rate / (noise**2 * -np.expm1(-rate * t))
    return ncx2(4 * rate * level / noise**2, 2 * c * x0 * np.exp(-rate * t), scale=1 / (2 * c))


@pytest.mark.parametrize("params", [PARAMS, LOW], ids=["feller", "zero reached"])
def test_density_is_scipys(params):
    t = np.array([0.01, 0.1, 1.0, 5.0])
    law = chi_square(t, params)
    x = law.ppf(np.array([1e-6, 0.1, 0.5, 0.9, 1 - 1e-6])[:, None])
    # Closed forms on both sides: rounding of terms up to a few hundred.
    np.testing.assert_allclose(
        CIR.log_prob(x[..., None], t, X0, params), law.logpdf(x), rtol=1e-12, atol=1e-12
    )


def test_bessel_is_scipys_for_any_order():
    order = np.array([-0.95, -0.3, 0.0, 0.7, 5.0, 100.0])[:, None]
    z = np.geomspace(1e-3, 1e6, 30)[None]
    found = jax.jit(jnp.vectorize(log_scaled_bessel))(order, z)
    with np.errstate(divide="ignore"):
        expected = np.log(special.ive(order, z)) - order * np.log(z / 2)
    known = np.isfinite(expected) & (special.ive(order, z) > 1e-290)
    # What the number of nodes was chosen for, and rounding of logarithms up to 1e3.
    np.testing.assert_allclose(found[known], expected[known], rtol=1e-12, atol=1e-11)


def test_short_times_and_large_orders_stay_finite():
    t = np.array([1e-8, 1e-6, 1e-4])
    x = 0.25 + 0.2 * np.sqrt(0.25 * t)[:, None]  # one standard deviation up
    values = CIR.log_prob(x, t, X0, PARAMS)
    # The law becomes Gaussian; the first correction is of the order of the square root of time.
    expected = norm.logpdf(1.0) - np.log(0.2 * np.sqrt(0.25 * t))
    np.testing.assert_array_less(np.abs(values - expected), 5 * np.sqrt(t))


def test_gradients_in_parameters_and_start():
    x, t, step = np.array([0.31]), 0.4, 1e-5
    value = lambda p, x0: CIR.log_prob(x, t, x0, p)
    in_params, in_start = jax.grad(value, argnums=(0, 1))(PARAMS, jnp.asarray(X0))
    for name, number in PARAMS.items():
        up, down = (value(PARAMS | {name: number + e}, X0) for e in (step, -step))
        # Central differences: step**2 of a third derivative up to 1e3, and rounding over step.
        np.testing.assert_allclose(in_params[name], (up - down) / (2 * step), rtol=1e-5)
    difference = (value(PARAMS, X0 + step) - value(PARAMS, X0 - step)) / (2 * step)
    np.testing.assert_allclose(in_start[0], difference, rtol=1e-6)


def test_quantiles_of_gamma_laws():
    shape = np.array([0.05, 0.5, 3.0, 44.5])[:, None]
    noise = np.array([[-6.0, -1.0, 0.0, 0.5, 6.0]])
    found = jax.jit(jnp.vectorize(gamma_quantile))(shape, noise)
    lower, upper = gamma.ppf(norm.cdf(noise), shape), gamma.isf(norm.sf(noise), shape)
    expected = np.where(noise < 0, lower, upper)
    # Quantiles of small shapes multiply the error of the distribution function by 1 / shape.
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize("params", [PARAMS, LOW], ids=["feller", "zero reached"])
def test_samples_follow_the_density(params, getkey):
    draws = np.asarray(CIR.sample(getkey(), 0.5, X0, (2000,), params))
    # Kolmogorov-Smirnov: a correct sampler fails for one key in ten thousand.
    assert kstest(draws[:, 0], chi_square(0.5, params).cdf).pvalue > 1e-4


def test_too_few_degrees_of_freedom_cannot_be_sampled():
    with pytest.raises(Exception, match=r"4 \* rate \* level"):
        jax.block_until_ready(CIR.sample(jr.key(0), 0.5, X0, (), LOW | {"noise": 2.0}))


def test_nothing_is_below_zero():
    assert CIR.prob(np.array([[-0.1], [0.0]]), 0.5, X0, PARAMS).max() == 0
