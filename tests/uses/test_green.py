import dataclasses

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.scipy.stats import norm
from scipy.special import ndtr
from scipy.stats import kstest

import diracflow as df
from diracflow.uses.green import reversed_gaussian
from helpers import still_density

BROWNIAN = df.models.brownian(1).exact
OU = df.ExactOrnsteinUhlenbeck()


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


def test_a_law_serves_short_times_as_well_as_long_ones():
    # A mixture under Brownian motion stays a mixture: variances grow by t.
    components = ((0.0, 0.5), (3.0, 0.1))
    mixture = df.Mixture([df.Normal(m, s) for m, s in components], [0.3, 0.7])
    x = np.linspace(-1.5, 3.4, 40)[:, None]
    for t in (1e-6, 1e-2, 1.0, 1e2):
        law = df.propagate(BROWNIAN, mixture, t, draws=1024)
        parts = [norm.pdf(x[:, 0], m, np.sqrt(s**2 + t)) for m, s in components]
        exact = 0.3 * parts[0] + 0.7 * parts[1]
        errors, stated = law.prob(x) / exact - 1, law.standard_error(x)
        # Student's law with seven degrees of freedom has a root mean square of 1.2.
        assert np.sqrt(np.mean((errors / stated) ** 2)) < 2.5
        # Half of the starts lie near each point; plain draws would see none at all.
        assert np.max(stated[exact > 1e-2 * exact.max()]) < 0.05


def test_standard_error_of_draws_is_that_of_a_mean(getkey):
    draws, x = jr.normal(getkey(), (500, 1)), np.array([[0.3], [2.0]])
    terms = np.asarray(BROWNIAN.prob(x[:, None], 0.5, draws))
    expected = terms.std(axis=1, ddof=1) / terms.mean(axis=1) / np.sqrt(500)
    found = df.propagate(BROWNIAN, draws, 0.5).standard_error(x)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_starts_outside_the_support_count_for_nothing():
    # Beyond the edges the Gaussian about the point draws starts that the law does not have.
    params = {"rate": 0.0, "level": 0.0, "noise": 1.0}
    law = df.propagate(OU, df.Uniform(-1.0, 2.0), 0.01, params=params)
    x = np.array([[-1.1], [0.0], [1.99]])
    exact = (ndtr((x + 1) / 0.1) - ndtr((x - 2) / 0.1))[:, 0] / 3
    errors = (law.prob(x) / exact - 1) / law.standard_error(x)
    # Student's law with seven degrees of freedom: beyond 9 once in 20 000.
    assert np.max(np.abs(errors)) < 9
    assert law.sample(jr.key(0), (3, 2)).shape == (3, 2, 1)


def test_the_reversed_gaussian_is_exact_for_linear_equations():
    # Up to the factor by which it is widened: rho(x | t, .) is Gaussian about its peak.
    t, x, tail = jnp.array(1.5), jnp.array([0.9]), jnp.array([0.8, 0.3, 0.6])
    found = jax.jit(lambda: reversed_gaussian(OU, OU._at_time(t), x, tail, jnp.array(1e3)))()
    decay = np.exp(-0.8 * 1.5)
    np.testing.assert_allclose(0.3 + decay * (found.mean[0] - 0.3), x[0], rtol=1e-12)
    variance = 0.6**2 / 1.6 * (1 - decay**2) / decay**2
    np.testing.assert_allclose(found.factor[0, 0] ** 2, 1.3 * variance, rtol=1e-12)


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
    "no draws": (df.Normal(), 0.5, "at least 1"),
    "several t": (np.zeros((3, 1)), np.array([0.1, 0.2]), "one time"),
}


@pytest.mark.parametrize("draws, t, message", BAD_STARTS.values(), ids=BAD_STARTS)
def test_bad_starts_are_refused(draws, t, message):
    with pytest.raises(ValueError, match=message):
        df.propagate(BROWNIAN, draws, t, draws=0)


def test_one_law_goes_with_one_set_of_parameters():
    params = {"rate": np.ones(3), "level": 0.0, "noise": 1.0}
    with pytest.raises(ValueError, match="`rate` must be one number"):
        df.propagate(OU, df.Normal(), 0.5, params=params)


OVER_LEGS = dataclasses.replace(
    df.models.ornstein_uhlenbeck(1, rate=0.8, level=0.3, noise=0.6), horizon=3.0
)


@pytest.fixture(scope="module", params=["lattice", "walked"])
def over_legs(request):
    return still_density(OVER_LEGS, legs=3, lattice=request.param == "lattice")


def test_laws_and_draws_move_over_legs(over_legs, getkey):
    t = 2.5  # three legs
    x = np.linspace(-1.5, 2.5, 21)[:, None]
    decay = np.exp(-0.8 * t)
    mean = 0.3 + (0.5 - 0.3) * decay
    std = np.sqrt(0.16 * decay**2 + 0.225 * (1 - decay**2))
    exact = norm.pdf(x[:, 0], mean, std)
    draws = 0.5 + 0.4 * jr.normal(getkey(), (4096, 1))
    for law_or_draws in (df.Normal(0.5, 0.4), draws):
        law = df.propagate(over_legs, law_or_draws, t)
        errors, stated = law.prob(x) / exact - 1, law.standard_error(x)
        # Student's law with seven degrees of freedom has a root mean square of 1.2; errors of
        # draws go together, so that their mean square may be as large as their largest. The
        # lattice's own error is 1e-5.
        assert np.sqrt(np.mean((errors / (stated + 1e-4)) ** 2)) < 3.5
        assert np.max(stated[exact > 0.1 * exact.max()]) < 0.05


def test_one_draw_over_legs_is_the_transition_density(over_legs):
    x, x0 = np.linspace(-1.0, 2.0, 7)[:, None], np.array([[1.2]])
    found = df.propagate(over_legs, x0, 2.5).log_prob(x)
    # 4096 walked paths: a hundredth or two.
    np.testing.assert_allclose(found, OVER_LEGS.exact.log_prob(x, 2.5, x0[0]), atol=0.1)


def test_moving_over_legs_costs_no_mixtures(over_legs):
    law = df.propagate(over_legs, df.Normal(0.0, 1.0), 2.5, draws=1024)
    assert law.mixture.density is over_legs.base
    assert float(law.mixture.t) == pytest.approx(0.75)
    assert law.mixture.rows <= 1024
    assert df.propagate(over_legs, df.Normal(0.0, 1.0), 0.9).density is over_legs.base
