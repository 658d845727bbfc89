"""Checks of predictions: right models pass, wrong ones are rejected, and by the stated amount."""

import jax.random as jr
import numpy as np
import pytest
from jax.scipy.stats import norm as jax_norm
from scipy.stats import norm

import diracflow as df
from diracflow.evaluate.predictive import ljung_box

OU = df.ExactOrnsteinUhlenbeck()
TRUE = {"rate": 0.8, "level": 0.3, "noise": 0.6}
WRONG = TRUE | {"noise": 0.9}
TIMES = 0.5 * np.arange(401)
NOISE = 0.3


@pytest.fixture(scope="module")
def path():
    return np.asarray(df.simulate(7, OU, TIMES, [0.3], params=TRUE).states[0])


def test_transforms_are_the_exact_distribution_function(path):
    check = df.evaluate.path_check(OU, TIMES, path, TRUE)
    decay = np.exp(-0.4)
    law = norm(0.3 + decay * (path[:-1] - 0.3), 0.6 * np.sqrt((1 - decay**2) / 1.6))
    np.testing.assert_allclose(check.transforms, law.cdf(path[1:]), rtol=1e-9)
    total = float(df.log_likelihood(OU, TIMES, path, TRUE))
    assert check.log_scores.sum() == pytest.approx(total, rel=1e-12)
    assert len(check.after(100.0).times) == 200


def test_the_right_model_passes_and_a_wrong_one_is_rejected(path):
    right, wrong = (df.evaluate.path_check(OU, TIMES, path, p) for p in (TRUE, WRONG))
    # The key was chosen once; one right model in three hundred has a p-value below 1e-3.
    assert min(test.p.min() for test in right.tests().values()) > 1e-3
    # Noise that is half as large again: 400 transforms reject it at once.
    assert wrong.tests()["uniform"].p[0] < 1e-4
    found = df.evaluate.compare(right, wrong)
    # The expected difference of log scores of Gaussians of equal mean is their divergence.
    ratio = (TRUE["noise"] / WRONG["noise"]) ** 2
    expected = 400 * 0.5 * (ratio - 1 - np.log(ratio))
    assert abs(found.difference - expected) < 4 * found.stderr
    assert found.count == 400
    reverse = df.evaluate.compare(wrong.log_scores, right.log_scores)
    assert reverse.difference == pytest.approx(-found.difference)


def test_the_standard_error_counts_autocorrelation():
    noise = np.random.default_rng(0).normal(size=4000)
    sums = np.convolve(noise, np.ones(5), "valid")
    # Sums of five overlapping terms: the variance of their mean is five times as large.
    one, many = (df.evaluate.compare(sums, 0 * sums, lags).stderr for lags in (0, 60))
    assert many / one == pytest.approx(np.sqrt(5), rel=0.15)  # Bartlett's bias is 4 / 60 and noise


def test_rosenblatt_components_are_uniform():
    """In two components the second is transformed given the first."""
    rate, noise = np.array([[1.0, 0.5], [-0.3, 0.8]]), np.array([[0.8, 0.0], [0.5, 0.6]])
    exact = df.models.ornstein_uhlenbeck(2, rate=rate, noise=noise).exact
    times = 0.5 * np.arange(4)
    states = np.asarray(df.simulate(1, exact, times, [0.0, 0.0]).states[0])
    check = df.evaluate.path_check(exact, times, states)
    law = exact.at(0.5, states[:-1])
    mean, factor = np.asarray(law.mean()), np.linalg.cholesky(np.asarray(law.cov()))
    # The Cholesky factor takes components one after the other, as Rosenblatt does.
    scores = np.linalg.solve(factor, (states[1:] - mean)[..., None])[..., 0]
    # The quadrature of a marginal in the plane is accurate to about 1e-9.
    np.testing.assert_allclose(check.normal_scores, scores, atol=1e-6)


def test_predictions_of_a_filter_are_those_of_the_kalman_filter(path):
    times, truth = TIMES[1:41], path[1:41]
    y = truth + NOISE * np.asarray(jr.normal(jr.key(5), truth.shape))
    y[7] = np.nan
    observe = lambda x, y: jax_norm.logpdf(y[0], x[0], NOISE)
    cdf = lambda x, y: jax_norm.cdf(y[0], x[0], NOISE)
    exact = df.models.ornstein_uhlenbeck(1, rate=0.8, level=0.3, noise=0.6).exact
    initial, count = df.Normal(0.3, 0.6), 4000
    found = df.filter(1, exact, times, y, observe, count, initial=initial, history=True)
    check = df.evaluate.filter_check(2, exact, found, y, cdf)
    kalman = df.evaluate.kalman_filter(exact, times, y, np.eye(1), np.eye(1) * NOISE**2, initial)
    decay = np.exp(-0.4)
    mean = 0.3 + decay * (kalman.means[:-1, 0] - 0.3)
    variance = decay**2 * kalman.covariances[:-1, 0, 0] + 0.36 / 1.6 * (1 - decay**2)
    seen = ~np.isnan(y[1:, 0])
    expected = norm.cdf(y[1:, 0], mean, np.sqrt(variance + NOISE**2))[seen]
    # Five standard errors of a mean of values in [0, 1], of which a quarter of the draws count.
    np.testing.assert_allclose(check.transforms[:, 0], expected, atol=5 * 0.5 / np.sqrt(count / 4))
    np.testing.assert_array_equal(check.times, times[1:][seen])
    assert check.log_scores.sum() == pytest.approx(found.log_evidence - found.log_evidences[0])


def test_autocorrelation_is_noticed():
    noise = np.random.default_rng(0).normal(size=400)
    followed = np.convolve(noise, 0.5 ** np.arange(8))[:400]
    assert ljung_box(noise, 8)[1] > 1e-3
    assert ljung_box(followed, 8)[1] < 1e-10


def test_mistakes_are_refused(path):
    with pytest.raises(ValueError, match="lags need more"):
        ljung_box(np.arange(5.0), 8)
    with pytest.raises(ValueError, match="must be one path"):
        df.evaluate.path_check(OU, TIMES, np.stack([path, path]), TRUE)
    with pytest.raises(ValueError, match="same predictions"):
        df.evaluate.compare(np.zeros(3), np.zeros(4))
    with pytest.raises(ValueError, match="must come from `filter`"):
        df.evaluate.filter_check(0, OU, path, path, None, TRUE)
    check = df.evaluate.PredictiveCheck(TIMES[1:], path[1:], path[1:, 0])
    with pytest.raises(ValueError, match="same times"):
        df.evaluate.compare(check, check.after(100.0))
