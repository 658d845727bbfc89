import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import kstest

import diracflow as df
from diracflow.sde.chart import CoordinateLaw
from diracflow.sde.laws import law_from

LAWS = {
    "normal": df.Normal([0.3, -1.0], [0.5, 2.0]),
    "covariance": df.Normal([0.3, -1.0], covariance=[[2.0, 0.7], [0.7, 1.0]]),
    "uniform": df.Uniform([-1.0, 0.0], [1.0, 3.0]),
    "lognormal": df.LogNormal([-1.0, 0.0], [0.4, 0.2]),
    "product": df.Product(df.Normal(0.0, 0.1), df.LogNormal(-2.4, 0.25)),
    "coordinates": CoordinateLaw(
        df.Normal([0.3, -1.0], [0.5, 2.0]), (df.Positive(0.5, 2.0), df.Interval(-1.0, 3.0))
    ),
}
MIXTURE = df.Mixture(
    [df.Normal([0.3, -1.0], [0.5, 2.0]), df.Normal([4.0, 4.0], [0.5, 0.1])], [1, 3]
)
each_law = pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)


@each_law
def test_density_is_that_of_the_transport(law, getkey):
    # x = T(u) with u uniform has density 1 / |det T'(u)|.
    u = jax.random.uniform(getkey(), (2,))
    jacobian = jax.jit(jax.jacfwd(law.from_uniform))(u)
    log_det = np.linalg.slogdet(jacobian)[1]
    value = jax.jit(lambda u: law.log_prob(law.from_uniform(u)))(u)
    np.testing.assert_allclose(value, -log_det, rtol=1e-9)


@each_law
def test_description_makes_the_law_again(law, getkey):
    again = law_from(law.describe())
    u = jax.random.uniform(getkey(), (2,))
    np.testing.assert_allclose(again.from_uniform(u), law.from_uniform(u), rtol=1e-12)


@each_law
def test_samples_have_the_asked_shape_and_are_finite(law, getkey):
    draws = law.sample(getkey(), (3, 5))
    assert draws.shape == (3, 5, 2)
    assert np.all(np.isfinite(draws))


def test_float32_draws_are_finite():
    with jax.enable_x64(False):
        for seed in range(3):
            draws = df.Normal(0.0, 1.0).expand(1).sample(jax.random.key(seed), (2**22,))
            assert np.all(np.isfinite(draws))


def test_scalars_repeat_over_components():
    law = df.Normal(1.0, 0.5)
    assert law.dim is None
    assert law.expand(3).dim == 3
    np.testing.assert_array_equal(law.expand(3).mean, np.ones(3))


def test_mean_and_covariance_of_draws(getkey):
    law, n = LAWS["covariance"], 20_000
    draws = np.asarray(law.sample(getkey(), (n,)))
    # Standard error of a mean is std / sqrt(n); of a variance sqrt(2 / n) of it. Five of each.
    np.testing.assert_allclose(draws.mean(0), law.mean, atol=5 * np.sqrt(2.0 / n))
    np.testing.assert_allclose(np.cov(draws.T), [[2, 0.7], [0.7, 1]], atol=5 * 2 * np.sqrt(2 / n))


def test_a_mixture_weighs_its_densities():
    x = np.array([[0.1, 0.2], [3.9, 4.0]])
    expected = 0.25 * np.exp(MIXTURE.laws[0].log_prob(x)) + 0.75 * np.exp(
        MIXTURE.laws[1].log_prob(x)
    )
    np.testing.assert_allclose(np.exp(MIXTURE.log_prob(x)), expected, rtol=1e-13)


def test_a_mixture_divides_the_cube(getkey):
    # A quarter of the first coordinate goes to the first law, and within it is uniform again.
    u = np.array([0.125, 0.3])
    np.testing.assert_allclose(
        MIXTURE.from_uniform(u), MIXTURE.laws[0].from_uniform(np.array([0.5, 0.3])), rtol=1e-12
    )
    draws = np.asarray(MIXTURE.sample(getkey(), (20_000,)))
    near = np.mean(draws[:, 0] < 2.5)  # between the two, three and more deviations from each
    # Five standard errors of a share of a quarter.
    assert abs(near - 0.25) < 5 * np.sqrt(0.25 * 0.75 / 20_000)


def test_a_mixture_is_described_and_expanded():
    again = law_from(MIXTURE.describe())
    x = np.array([0.4, -0.3])
    np.testing.assert_allclose(again.log_prob(x), MIXTURE.log_prob(x), rtol=1e-12)
    assert df.Mixture([df.Normal(0.0, 1.0), df.Uniform(0.0, 1.0)]).expand(3).dim == 3


BAD_LAWS = {
    "mixture of nothing": (lambda: df.Mixture([]), "one or more"),
    "mixture of numbers": (lambda: df.Mixture([1.0]), "one or more"),
    "weights": (lambda: df.Mixture([df.Normal()], [0.5, 0.5]), "1 laws needs 1.*0.5, 0.5"),
    "negative weight": (lambda: df.Mixture([df.Normal()] * 2, [2, -1]), "positive"),
    "mixture dimension": (
        lambda: df.Mixture([df.Normal([0.0, 1.0], 1.0), df.Normal([0.0] * 3, 1.0)]),
        "the same dimension",
    ),
    "negative std": (lambda: df.Normal(0.0, -1.0), "`std` must be positive"),
    "indefinite": (lambda: df.Normal(covariance=[[1.0, 2.0], [2.0, 1.0]]), "positive definite.*-1"),
    "not square": (lambda: df.Normal(covariance=np.ones((2, 3))), r"square matrix.*\(2, 3\)"),
    "not symmetric": (lambda: df.Normal(covariance=[[1.0, 0.5], [0.0, 1.0]]), "symmetric"),
    "both": (lambda: df.Normal(0.0, 1.0, covariance=[[1.0]]), "got both"),
    "lengths": (lambda: df.Normal([0.0, 1.0], [1.0, 1.0, 1.0]), "the same length"),
    "nan": (lambda: df.Normal(np.nan, 1.0), "finite"),
    "empty interval": (lambda: df.Uniform(1.0, 1.0), "low < high"),
    "dimension": (lambda: df.Normal([0.0, 1.0], 1.0).expand(3), "2 components.*3"),
    "product dimension": (lambda: df.Product(df.Normal()).expand(2), "1 components.*2"),
    "product of nothing": (df.Product, "one or more"),
    "matrix mean": (lambda: df.Normal(np.zeros((2, 2))), "scalar or a vector"),
}


@pytest.mark.parametrize("make, message", BAD_LAWS.values(), ids=BAD_LAWS)
def test_bad_laws_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@each_law
def test_normal_scores_undo_the_transport(law, getkey):
    u = jax.random.uniform(getkey(), (2,))
    scores = law.to_normal(law.from_uniform(u))
    np.testing.assert_allclose(jax.scipy.stats.norm.cdf(scores), u, rtol=1e-9)


@each_law
def test_coverage_of_draws_is_uniform(law, getkey):
    shares = np.asarray(law.coverage(law.sample(getkey(), (2000,))))
    # A correct coverage fails for one key in ten thousand.
    assert kstest(shares, "uniform").pvalue > 1e-4
    centre = law.from_uniform(jnp.full(2, 0.5))
    np.testing.assert_allclose(law.coverage(centre), 1.0, atol=1e-12)


@pytest.mark.parametrize("law", [LAWS["uniform"], LAWS["lognormal"], LAWS["product"]])
def test_nothing_lies_further_out_than_the_outside(law):
    assert law.coverage(jnp.array([0.0, -1.0])) == 0


def test_a_mixture_is_centred_at_each_of_its_laws():
    centres = jnp.array([[0.3, -1.0], [4.0, 4.0]])
    np.testing.assert_allclose(MIXTURE.coverage(centres), 1.0, atol=1e-12)
    assert MIXTURE.coverage(jnp.array([2.5, 6.0])) < 1e-3
