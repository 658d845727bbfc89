"""Laws of several components against the formulas of linear and sheared processes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats as st

import diracflow as df

T, DIM = 0.7, 6
_RNG = np.random.default_rng(5)
RATE = np.eye(DIM) + 0.25 * _RNG.normal(size=(DIM, DIM))
NOISE = 0.6 * np.eye(DIM) + 0.2 * _RNG.normal(size=(DIM, DIM))
OU = df.models.ornstein_uhlenbeck(DIM, rate=RATE, level=0.2, noise=NOISE).exact
X0 = 0.3 * _RNG.normal(size=DIM)
LAW = OU.at(T, X0)


def gaussian():
    change, factor = (np.asarray(a) for a in OU._at_time(jnp.asarray(T)))
    return X0 + change @ (X0 - 0.2), factor @ factor.T


MEAN, COV = gaussian()


def test_moments_within_their_standard_errors():
    for f, expected in (
        (lambda x: x, MEAN),
        (lambda x: jnp.outer(x - MEAN, x - MEAN), COV),
    ):
        value, error = LAW.expect(f)
        assert np.all(np.abs(value - expected) <= 4 * np.asarray(error) + 1e-12)
    # Linear maps of standardised points have exact first and second moments.
    np.testing.assert_allclose(LAW.mean(), MEAN, rtol=1e-12)
    np.testing.assert_allclose(LAW.cov(), COV, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(LAW.entropy(), st.multivariate_normal(MEAN, COV).entropy())
    value, error = LAW.expect(lambda x: jnp.exp(jnp.sum(x)))
    expected = np.exp(MEAN.sum() + COV.sum() / 2)
    assert abs(value - expected) < 4 * error
    assert error < 1e-2 * expected


def test_distribution_functions_of_the_components():
    """Along the mean gradient a linear map does not depend on the other noise: exact."""
    deviations = np.sqrt(np.diag(COV))
    x = MEAN + deviations * np.array([[-4.0], [-1.0], [0.3], [1.5], [5.0]])
    np.testing.assert_allclose(LAW.cdf(x), st.norm.cdf(x, MEAN, deviations), rtol=1e-10)
    np.testing.assert_allclose(LAW.sf(x), st.norm.sf(x, MEAN, deviations), rtol=1e-10)
    value, error = LAW.cdf_estimate(x)
    np.testing.assert_array_equal(value, LAW.cdf(x))
    assert error.shape == x.shape
    assert np.all(np.asarray(error) < 1e-12)
    q = np.array([0.1, 0.5, 0.8])
    expected = MEAN + deviations * st.norm.ppf(q)[:, None]
    np.testing.assert_allclose(LAW.ppf(q), expected, rtol=1e-10, atol=1e-12)
    low, high = LAW.interval(0.8)
    assert low.shape == high.shape == (DIM,)
    np.testing.assert_allclose(LAW.cdf(high) - LAW.cdf(low), 0.8, rtol=1e-12)
    batch = OU.at(np.array([0.3, T]), X0)
    np.testing.assert_allclose(batch.cdf(x[1])[1], value[1], rtol=1e-12)


def test_distribution_functions_of_jumping_draws():
    """Components of a Beneš process in two dimensions are mixtures of four normal laws."""
    density, x0, t = df.models.benes().exact, np.array([0.3, -0.2]), 0.5
    rotation = density.rotation
    y0 = rotation.T @ x0
    signs = np.array([[a, b] for a in (1, -1) for b in (1, -1)])
    weights = np.prod(1 / (1 + np.exp(-2 * signs * y0)), axis=1)
    means = (y0 + t * signs) @ rotation.T
    law, x = density.at(t, x0), np.array([[-2.5, -1.0], [0.1, 0.4], [2.0, 3.0]])
    mixture = lambda kind: np.einsum("k,nki->ni", weights, kind(x[:, None], means, np.sqrt(t)))
    value, error = law.cdf_estimate(x)
    np.testing.assert_allclose(value, mixture(st.norm.cdf), rtol=1e-8)
    np.testing.assert_allclose(law.sf(x), mixture(st.norm.sf), rtol=1e-8)
    assert np.all(np.asarray(error) < 1e-8)
    np.testing.assert_allclose(law.cdf(law.ppf(0.2)), 0.2, rtol=1e-10)


def curved_component(density, t, x0, x):
    """Distribution function of the second component, by quadrature over the first."""
    y0 = np.asarray(density._unshear(jnp.asarray(x0)))
    cov = t * density.mixing @ density.mixing.T
    y = y0[0] + np.sqrt(cov[0, 0]) * np.linspace(-9, 9, 4001)
    gain = cov[0, 1] / cov[0, 0]
    mean = y0[1] + gain * (y - y0[0]) + density.shear * y**2
    spread = np.sqrt(cov[1, 1] - gain * cov[0, 1])
    weights = st.norm.pdf(y, y0[0], np.sqrt(cov[0, 0]))
    parts = st.norm.cdf(np.asarray(x)[:, None], mean, spread)
    return np.trapezoid(weights * parts, y, axis=1)


@pytest.mark.parametrize("dim, accuracy", [(2, 1e-6), (6, 2e-3)])
def test_lines_that_cross_a_level_twice(dim, accuracy):
    """A component that is a parabola of the noise, against quadrature.

    In two dimensions lines differ by one number, over which a trapezoidal rule runs. In six they
    are quasi-random, and the parabola makes their means vary.
    """
    density, x0 = df.models.sheared(dim).exact, 0.2 * np.ones(dim)
    law, second = density.at(T, x0), np.array([-1.0, 0.2, 1.0, 3.0])
    truth = curved_component(density, T, x0, second)
    x = np.zeros((len(second), dim))
    x[:, 1] = second
    value, error = (np.asarray(a)[:, 1] for a in law.cdf_estimate(x))
    assert np.all(np.abs(value - truth) < 4 * error + 1e-8)
    assert np.all(error < accuracy)
    slope = jax.grad(lambda x0: density.at(T, x0).cdf(x[1])[1])(jnp.asarray(x0))
    shift = 1e-4 * np.eye(dim)[0]
    ends = [curved_component(density, T, x0 + s * shift, second[1:2])[0] for s in (1, -1)]
    # The derivative is that of the estimate, whose relative error is about that of the value.
    np.testing.assert_allclose(slope[0], (ends[0] - ends[1]) / 2e-4, atol=10 * accuracy)


def test_distribution_functions_of_propagated_laws():
    """The start moves along noise columns of its own; a normal start stays normal."""
    start = df.Normal(0.1, 0.5)
    law = df.propagate(OU, start, T)
    change = np.eye(DIM) + np.asarray(OU._at_time(jnp.asarray(T))[0])
    mean = change @ (np.full(DIM, 0.1) - 0.2) + 0.2
    deviations = np.sqrt(np.diag(COV + 0.25 * change @ change.T))
    x = mean + deviations * np.array([[-1.0], [0.5]])
    value, error = law.cdf_estimate(x)
    truth = st.norm.cdf(x, mean, deviations)
    assert np.all(np.abs(value - truth) < 4 * np.asarray(error))
    assert np.all(np.asarray(error) < 1e-3)


def relative_error(law, mean, cov, draws):
    """Squared L2 error relative to the squared norm, by draws of the law itself."""
    truth = st.multivariate_normal(mean, cov).pdf(draws)
    found = np.asarray(law.prob(draws))
    return np.mean((found - truth) ** 2 / truth) / np.mean(truth)


@pytest.mark.parametrize("kept", [[0, 1, 2, 3, 5], [4, 0, 1, 2], [2, 5], [3]])
def test_marginals_of_a_gaussian(kept):
    """With one, two, four and five hidden components."""
    law = LAW.marginal(kept)
    mean, cov = MEAN[kept], COV[np.ix_(kept, kept)]
    draws = np.random.default_rng(0).multivariate_normal(mean, cov, size=40)
    # To rounding by quadrature; importance sampling has a standard error of about 1e-3.
    assert relative_error(law, mean, cov, draws) < (1e-18 if len(kept) >= DIM - 2 else 1e-6)
    assert np.all(np.asarray(law.standard_error(draws)) < 2e-3)
    np.testing.assert_allclose(law.mean(), mean, atol=1e-6)
    assert law.sample(0, 7).shape == (7, len(kept))


def test_a_marginal_of_one_component_has_distribution_functions():
    """One hidden component: by quadrature. Five: along lines of the noise of the whole law."""
    process = df.models.ornstein_uhlenbeck(2, rate=RATE[:2, :2], noise=NOISE[:2, :2]).exact
    factor = np.asarray(process._at_time(jnp.asarray(T))[1])
    law = process.at(T, np.zeros(2)).marginal(1)
    truth = st.norm(0.0, np.sqrt((factor @ factor.T)[1, 1]))
    np.testing.assert_allclose(law.cdf([[0.2], [-0.4]]), truth.cdf([0.2, -0.4]), rtol=1e-9)
    np.testing.assert_allclose(law.ppf(0.9), [truth.ppf(0.9)], rtol=1e-9)
    np.testing.assert_allclose(law.std(), [truth.std()], rtol=1e-9)
    rough = LAW.marginal(3)
    np.testing.assert_allclose(rough.cdf(MEAN[3:4]), 0.5, rtol=1e-10)


@pytest.mark.parametrize("given", [[0, 1, 2, 3, 4], [5, 0, 1, 2], [1, 4]])
def test_conditionals_of_a_gaussian(given):
    """With one, two and four free components."""
    free = [i for i in range(DIM) if i not in given]
    values = MEAN[given] + 0.4 * np.sqrt(np.diag(COV))[given]
    law = LAW.conditional(dict(zip(given, values, strict=True)))
    gain = COV[np.ix_(free, given)] @ np.linalg.inv(COV[np.ix_(given, given)])
    mean = MEAN[free] + gain @ (values - MEAN[given])
    cov = COV[np.ix_(free, free)] - gain @ COV[np.ix_(given, free)]
    draws = np.random.default_rng(0).multivariate_normal(mean, cov, size=40)
    assert relative_error(law, mean, cov, draws) < (1e-18 if len(free) <= 2 else 1e-6)
    accuracy = 1e-9 if len(free) <= 2 else 2e-3
    np.testing.assert_allclose(law.mean(), mean, atol=accuracy)
    np.testing.assert_allclose(law.cov(), cov, atol=accuracy)
    own = np.asarray(law.sample(0, 2000))
    np.testing.assert_allclose(own.mean(axis=0), mean, atol=0.1 * np.sqrt(cov.max()))


SHEARED = df.models.sheared(DIM).exact


def test_marginals_of_the_sheared_process():
    """The first two components are a curved law; the others are hidden."""
    x0 = 0.2 * np.ones(DIM)
    law = SHEARED.at(T, x0)
    draws = np.asarray(law.sample(1, 30))[:, :2]
    y0 = np.asarray(SHEARED._unshear(jnp.asarray(x0)))[:2]
    cov = T * (SHEARED.mixing @ SHEARED.mixing.T)[:2, :2]
    straight = draws - SHEARED.shear * np.stack([0 * draws[:, 0], draws[:, 0] ** 2], axis=-1)
    truth = st.multivariate_normal(y0, cov).pdf(straight)
    found = np.asarray(law.marginal([0, 1]).prob(draws))
    assert np.mean((found - truth) ** 2 / truth) / np.mean(truth) < 1e-6
    # The first component is hidden, and the law of the second given it is curved.
    kept = [1, 2, 3, 4, 5]
    found = np.asarray(law.marginal(kept).prob(np.asarray(law.sample(1, 5))[:, kept]))
    fine = _integrated(law, np.asarray(law.sample(1, 5)))
    np.testing.assert_allclose(found, fine, rtol=1e-6)


def test_a_conditional_of_the_sheared_process():
    """Given the first two components, the four others are normal."""
    x0, given = 0.2 * np.ones(DIM), np.array([0.4, 0.1])
    law = SHEARED.at(T, x0).conditional({0: given[0], 1: given[1]})
    y0 = np.asarray(SHEARED._unshear(jnp.asarray(x0)))
    cov = T * SHEARED.mixing @ SHEARED.mixing.T
    gain = cov[2:, :2] @ np.linalg.inv(cov[:2, :2])
    straight = given - SHEARED.shear * np.array([0.0, given[0] ** 2])
    mean, spread = y0[2:] + gain @ (straight - y0[:2]), cov[2:, 2:] - gain @ cov[:2, 2:]
    draws = np.random.default_rng(0).multivariate_normal(mean, spread, size=40)
    assert relative_error(law, mean, spread, draws) < 1e-6


def _integrated(law, states):
    grid = np.linspace(-12, 12, 6001)
    points = np.repeat(states[:, None], len(grid), axis=1)
    points[:, :, 0] = grid
    return np.trapezoid(np.asarray(law.prob(points)), grid, axis=1)


def test_components_in_domains_and_batches():
    """A positive component is integrated in the coordinates of its domain."""
    law = PairOfLaws()
    found = law.marginal(1)
    np.testing.assert_allclose(
        found.pdf([[0.5], [2.0]]), st.lognorm(0.4).pdf([0.5, 2.0]), rtol=1e-9
    )
    given = law.conditional({0: 0.3})
    np.testing.assert_allclose(given.mean(), [st.lognorm(0.4).mean()], rtol=1e-9)
    np.testing.assert_allclose(given.cdf([1.2]), st.lognorm(0.4).cdf(1.2), rtol=1e-10)
    batch = OU.at(np.array([0.3, T]), X0)
    marginal, one = batch.marginal([0, 2]), LAW.marginal([0, 2])
    x = MEAN[[0, 2]]
    np.testing.assert_allclose(marginal.log_prob(x)[1], one.log_prob(x), rtol=1e-10)
    assert marginal.cov().shape == (2, 2, 2)
    conditional = batch.conditional({0: 0.1, 1: 0.2, 2: 0.0, 3: 0.1})
    assert conditional.mean().shape == (2, 2)
    assert conditional.sample(0, 3).shape == (3, 2, 2)


class PairOfLaws(df.AbstractDistribution):
    """A normal and a log-normal component, independent."""

    dim = noise_dim = 2
    domain = (df.Real(), df.Positive())

    def _log_probs(self, x):
        log_x = jnp.log(x[..., 1])
        parts = jax.scipy.stats.norm.logpdf
        return parts(x[..., 0]) + parts(log_x, 0.0, 0.4) - log_x

    def _images(self, noise):
        return jnp.stack([noise[..., 0], jnp.exp(0.4 * noise[..., 1])], axis=-1)


def test_marginal_of_a_marginal_and_gradients():
    twice = LAW.marginal([0, 2, 4]).marginal([2, 0])
    x = MEAN[[4, 0]]
    np.testing.assert_allclose(twice.log_prob(x), LAW.marginal([4, 0]).log_prob(x), rtol=1e-12)
    log_prob = lambda x0: OU.at(T, x0).marginal([0, 1, 2, 3]).log_prob(MEAN[:4] + 0.1)
    slope, step = jax.grad(log_prob)(jnp.asarray(X0)), 1e-5
    shift = step * np.eye(DIM)[0]
    difference = (log_prob(X0 + shift) - log_prob(X0 - shift)) / (2 * step)
    np.testing.assert_allclose(slope[0], difference, rtol=1e-5)


def test_expectations_of_jumping_draws_have_derivatives():
    """Draws of the exact Beneš density choose a branch, so that their derivative is not used."""
    density, x0 = df.models.benes().exact, jnp.array([0.3, -0.2])
    mean = lambda x0: density.at(0.5, x0).mean(points=2**14)[0]
    # The mean of a Beneš process moves with the drift: X0 + t R tanh(R' X0).
    rotation = density.rotation
    exact = lambda x0: (x0 + 0.5 * rotation @ jnp.tanh(rotation.T @ x0))[0]
    np.testing.assert_allclose(mean(x0), exact(x0), atol=2e-3)
    np.testing.assert_allclose(jax.grad(mean)(x0), jax.grad(exact)(x0), atol=2e-2)


def test_all_components_in_another_order():
    law = df.models.ornstein_uhlenbeck(2).exact.at(0.5, [0.3, -0.2])
    swapped = law.marginal([1, 0])
    np.testing.assert_allclose(swapped.logpdf([0.1, 0.4]), law.logpdf([0.4, 0.1]), rtol=1e-12)
    np.testing.assert_allclose(swapped.cdf([0.1, 0.4]), law.cdf([0.4, 0.1])[::-1], rtol=1e-12)
    one = df.models.ornstein_uhlenbeck(1).exact.at(0.5, 0.3)
    assert one.marginal(0).logpdf(0.1).shape == ()
    np.testing.assert_allclose(one.marginal(0).logpdf(0.1), one.logpdf(0.1), rtol=1e-12)


def test_the_distribution_function_of_all_components_together():
    law, x = df.models.ornstein_uhlenbeck(2).exact.at(0.5, [0.3, -0.2]), jnp.array([0.4, 0.1])
    found = law.expect(lambda y: jnp.all(y <= x))
    exact = jnp.prod(law.cdf(x))  # components are independent
    assert abs(found.value - exact) < 5 * found.stderr


def test_bad_components_and_values():
    for components, message in (
        ([0, 6], "from 0 to 5"),
        ([], "from 0 to 5"),
        ([1, 1], "must not repeat"),
        ([1, -5], "must not repeat"),
        ("ab", "whole number"),
        (0.5, "whole number"),
    ):
        with pytest.raises(ValueError, match=message):
            LAW.marginal(components)
    for given, message in (
        ({}, "must map components"),
        ([0], "must map components"),
        ({7: 0.1}, "from 0 to 5"),
        ({0: np.nan}, "inside its domain"),
        (dict.fromkeys(range(6), 0.1), "none is left"),
        ({0: [0.1, 0.2]}, "axes of the law's batch"),
    ):
        with pytest.raises(ValueError, match=message):
            LAW.conditional(given)
    with pytest.raises(ValueError, match=r"inside its domain \(0, inf\); got -1"):
        PairOfLaws().conditional({1: -1.0})
