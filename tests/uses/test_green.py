import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.scipy.stats import norm
from scipy.stats import kstest

import diracflow as df

BROWNIAN = df.models.brownian(1).exact


def test_gaussian_start_stays_gaussian_under_brownian_motion(getkey):
    mean, variance, t, n = 0.4, 0.25, 0.5, 4096
    draws = mean + np.sqrt(variance) * jr.normal(getkey(), (n, 1))
    x = jnp.array([1.0])

    estimate = df.propagate(BROWNIAN, draws, t).log_prob(x)
    exact = norm.logpdf(x[0], mean, np.sqrt(variance + t))

    # The log of a mean of n terms has standard error std / (mean * sqrt(n)). At five of
    # them a correct estimator fails for about one key in a million.
    terms = np.asarray(BROWNIAN.prob(x, t, draws))
    assert abs(estimate - exact) < 5 * terms.std() / terms.mean() / np.sqrt(n)


def test_a_law_is_spread_over_quasi_random_draws():
    x = np.array([[-0.5], [0.4], [2.0]])
    law = df.propagate(BROWNIAN, df.Normal(0.4, 0.5), 0.5)
    exact = norm.logpdf(x[:, 0], 0.4, np.sqrt(0.75))
    # Scrambled Sobol points: the error of a smooth mean falls nearly as 1 / 4096.
    np.testing.assert_allclose(law.log_prob(x), exact, atol=2e-3)


def test_one_draw_is_the_transition_density(getkey):
    exact = df.models.benes().exact
    x0, x = np.array([[0.3, 0.1]]), jr.normal(getkey(), (3, 4, 2))
    law = df.propagate(exact, x0, 0.7)
    np.testing.assert_allclose(law.log_prob(x), exact.log_prob(x, 0.7, x0[0]), rtol=1e-12)


def test_samples_follow_the_propagated_law(getkey):
    draws = 0.4 + 0.5 * jr.normal(getkey(), (20_000, 1))
    sample = df.propagate(BROWNIAN, draws, 0.5).sample(getkey(), (2000,))
    assert sample.shape == (2000, 1)
    assert kstest(np.asarray(sample)[:, 0], "norm", (0.4, np.sqrt(0.75))).pvalue > 1e-4


def test_far_tails_do_not_underflow():
    law = df.propagate(BROWNIAN, np.zeros((3, 1)), 0.01)
    assert np.isclose(law.log_prob(np.array([10.0])), -0.5 * 1e4 - 0.5 * np.log(2 * np.pi * 0.01))


BAD_STARTS = {
    "empty": (np.zeros((0, 1)), 0.5, "n > 0"),
    "one axis": (np.zeros(3), 0.5, r"shape \(n, 1\)"),
    "wrong length": (np.zeros((3, 2)), 0.5, r"shape \(n, 1\).*\(3, 2\)"),
    "nan": (np.array([[np.nan]]), 0.5, "contains NaN"),
    "law of other size": (df.Normal(np.zeros(2), 1.0), 0.5, "2 components.*1"),
    "t zero": (np.zeros((3, 1)), 0.0, "point mass"),
    "several t": (np.zeros((3, 1)), np.array([0.1, 0.2]), "one time"),
}


@pytest.mark.parametrize("draws, t, message", BAD_STARTS.values(), ids=BAD_STARTS)
def test_bad_starts_are_refused(draws, t, message):
    with pytest.raises(ValueError, match=message):
        df.propagate(BROWNIAN, draws, t)
