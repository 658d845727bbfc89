import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.scipy.stats import norm
from scipy.stats import multivariate_normal

import diracflow as df

OU = df.models.ornstein_uhlenbeck(2, rate=[[1.0, 0.5], [-0.3, 0.8]], noise=[[0.8, 0.0], [0.3, 0.6]])
# For Brownian motion the Euler step is exact, and it compiles quickly.
LINE = df.SourceDensity(df.EulerSource(df.models.brownian(1).sde), horizon=0.4)
FAMILY = df.ExactOrnsteinUhlenbeck()
INITIAL = df.Normal([0.5, -0.5], 0.7)
# The first component is observed, at unequal gaps, once at the start; one observation is missing.
TIMES = np.array([0.0, 0.3, 0.7, 1.5, 1.6, 2.4, 4.0, 4.2])
SEEN = np.array([0.9, 0.4, -0.2, np.nan, 0.1, -0.6, 0.5, 1.0])[:, None]
NOISE = 0.4


def observe(x, y):
    return norm.logpdf(y[0], x[0], NOISE)


def level(x, y):
    return norm.logpdf(y, x[0], NOISE)


@pytest.fixture(scope="module")
def reference():
    matrix, noise = np.array([[1.0, 0.0]]), np.array([[NOISE**2]])
    return df.evaluate.kalman_filter(OU.exact, TIMES, SEEN, matrix, noise, INITIAL)


@pytest.fixture(scope="module")
def replicates():
    """Return the results of the filter for 32 keys."""
    keys = jr.split(jr.key(5), 32)
    run = lambda key: df.filter(key, OU.exact, TIMES, SEEN, observe, 500, initial=INITIAL)
    return [run(key) for key in keys]


def within_errors(values, exact):
    """Return `True` if means over replicates agree with `exact` within standard errors."""
    values = np.asarray(values)
    error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    # Student's t with 31 degrees of freedom exceeds 6 about once in a million.
    return np.all(np.abs(values.mean(axis=0) - exact) < 6 * error)


def test_evidence_is_unbiased(replicates, reference):
    ratios = [np.exp(found.log_evidence - reference.log_evidence) for found in replicates]
    assert within_errors(ratios, 1.0)
    assert np.std(ratios) < 0.2  # so that the comparison is sharp


def test_means_and_variances_are_those_of_the_kalman_filter(replicates, reference):
    # Their bias is of order 1 / 500, their standard error over all replicates of order
    # 1 / sqrt(32 * 500), four times as large.
    assert within_errors([found.means for found in replicates], reference.means)
    exact = np.diagonal(reference.covariances, axis1=1, axis2=2)
    assert within_errors([found.variances for found in replicates], exact)


def test_quantiles_are_those_of_the_kalman_filter(replicates, reference):
    deviations = np.sqrt(np.diagonal(reference.covariances, axis1=1, axis2=2))
    exact = reference.means[:, None] + deviations[:, None] * norm.ppf(
        np.array([0.05, 0.5, 0.95])[None, :, None]
    )
    mean = np.mean([found.quantiles for found in replicates], axis=0)
    # Five standard errors. That of a 5 % quantile of n draws is 2.1 standard deviations / sqrt(n);
    # the effective sample size is about a third of 32 * 500 particles.
    np.testing.assert_allclose(mean, exact, atol=5 * 2.1 * deviations.max() / np.sqrt(5000))


def test_particles_are_resampled_below_half(getkey):
    sharp = lambda x, y: norm.logpdf(y, x[0], 0.02)
    times, seen = np.array([0.1, 0.1001]), np.array([0.3, np.nan])
    options = {"initial": [0.0], "history": True, "proposal": "bootstrap"}
    found = df.filter(getkey(), LINE, times, seen, sharp, 2000, **options)
    assert found.effective_shares[0] < 0.5
    assert found.effective_shares[1] == pytest.approx(1.0), "equal weights after resampling"
    spread = np.asarray(found.particles[1]).std()
    # A standard deviation of 0.02 from the observation, 0.01 from the short jump.
    assert 0.015 < spread < 0.03
    np.testing.assert_allclose(found.means[0], found.weights[0] @ found.particles[0])


def test_without_observations_the_law_is_carried_on_across_long_gaps(getkey):
    times, count = np.array([0.2, 1.0, 1.4, 3.0]), 20_000  # two gaps reach beyond the horizon
    with pytest.warns(UserWarning, match="All observations are missing"):
        found = df.filter(getkey(), LINE, times, np.full(4, np.nan), level, count, initial=[2.0])
    assert found.log_evidence == 0.0
    np.testing.assert_array_less(np.abs(found.means[:, 0] - 2), 5 * np.sqrt(times / count))
    # Variances of Gaussian samples have the relative standard error sqrt(2 / n).
    np.testing.assert_allclose(found.variances[:, 0], times, rtol=5 * np.sqrt(2 / count))


def test_the_start_of_the_initial_law_can_be_moved(getkey):
    key = getkey()
    run = lambda times, **others: df.filter(
        key, LINE, times, [0.3, 0.1], level, 100, initial=df.Normal(0.0, 1.0), **others
    )
    early, late = run([0.5, 1.0]), run([2020.5, 2021.0], start=2020.0)
    np.testing.assert_allclose(early.means, late.means, rtol=1e-9)


def unsmooth(x, y):
    return jax.pure_callback(lambda z: z, jax.ShapeDtypeStruct((), x.dtype), y - x[0])


MISTAKES = {
    "no times": ({"times": [], "observations": []}, "one time or more"),
    "equal times": ({"times": [0.1, 0.1]}, "must increase; got 0.1 then 0.1 at index 1"),
    "decreasing": ({"times": [0.2, 0.1]}, "must increase"),
    "nan time": ({"times": [0.2, np.nan]}, "`times` must be finite"),
    "before start": ({"times": [-0.2, 0.1]}, "lies before the start"),
    "too few": ({"observations": [0.1]}, "one entry for each of the 2 times"),
    "no particles": ({"particles": 0}, "`particles` must be at least 1"),
    "no law": ({"initial": None}, "pass `initial`"),
    "wrong law": ({"initial": df.Normal(np.zeros(2), 1.0)}, "2 components"),
    "wrong draws": ({"initial": np.zeros((3, 2))}, r"shape \(n, 1\)"),
    "nan draws": ({"initial": [np.nan]}, "`initial` must be finite"),
    "proposal": ({"proposal": "best"}, 'one of "auto", "bootstrap", "guided"; got .best.'),
    "no derivative": ({"proposal": "guided", "observe": unsmooth}, "two derivatives of `observe`"),
    "level": ({"quantiles": [1.5]}, "between 0 and 1"),
    "vector": ({"observe": lambda x, y: x - y}, "must return one number"),
    "failing": ({"observe": lambda x: x}, "could not be traced"),
}


@pytest.mark.parametrize("change, message", MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_refused(change, message):
    good = {"times": [0.1, 0.2], "observations": [0.0, 0.1], "observe": level}
    good |= {"particles": 10, "initial": [0.0]}
    with pytest.raises(ValueError, match=message):
        df.filter(jr.key(0), LINE, **(good | change))


FAILURES = {
    "impossible": (lambda x, y: jnp.where(y > 1, -jnp.inf, 0.0), "weight zero at observation 1"),
    "undefined": (lambda x, y: jnp.where(y > 1, jnp.nan, 0.0), "returned nan at observation 1"),
}


@pytest.mark.parametrize("observe, message", FAILURES.values(), ids=FAILURES)
def test_lost_particles_are_reported_with_their_time(observe, message, getkey):
    with pytest.raises(df.WeightsVanished, match=rf"{message} at t=0.2"):
        df.filter(getkey(), LINE, [0.1, 0.2, 0.3], [0.0, 2.0, 0.0], observe, initial=[0.0])


def test_evidence_can_be_compiled_and_mapped_over_parameters(getkey):
    key, levels = getkey(), jnp.array([-1.0, 0.0, 30.0])

    def evidence(level_):
        params = {"rate": 1.0, "level": level_, "noise": 0.5}
        data = [0.5, 1.0], [0.1, 0.2], level
        found = df.filter(key, FAMILY, *data, 200, initial=[0.0], params=params)
        return found.log_evidence

    together = jax.jit(jax.vmap(evidence))(levels)
    np.testing.assert_allclose(together, [evidence(each) for each in levels], rtol=1e-10)


def test_evidence_is_minus_infinity_where_no_particle_explains_an_observation(getkey):
    key = getkey()

    def evidence(shift):
        band = lambda x, y: jnp.where(jnp.abs(y + shift - x[0]) < 0.3, 0.0, -jnp.inf)
        return df.filter(key, LINE, [0.1, 0.2], [0.0, 0.1], band, 100, initial=[0.0]).log_evidence

    found = jax.jit(jax.vmap(evidence))(jnp.array([0.0, 90.0]))
    assert np.isfinite(found[0])
    assert found[1] == -np.inf


def with_each_proposal(names, key, *args, **options):
    """Return log-evidences and laws for 32 keys, with each kind of jumps."""

    def run(name):
        def one(key):
            found = df.filter(key, *args, 300, proposal=name, **options)
            return found.log_evidence, found.effective_shares, found.means, found.guided

        return jax.jit(jax.vmap(one))(jr.split(key, 32))

    return [run(name) for name in names]


def test_guided_jumps_keep_the_evidence_unbiased_where_noise_is_small(getkey):
    times, noise = np.array([0.0, 0.5, 1.0, 1.5]), 0.02
    seen = np.array([0.3, 0.5, np.nan, 0.1])[:, None]
    sharp = lambda x, y: norm.logpdf(y[0], x[0], noise)
    matrix, variance = np.array([[1.0, 0.0]]), np.array([[noise**2]])
    exact = df.evaluate.kalman_filter(OU.exact, times, seen, matrix, variance, INITIAL)
    data = OU.exact, times, seen, sharp
    guided, free = with_each_proposal(["guided", "bootstrap"], getkey(), *data, initial=INITIAL)
    assert within_errors(np.exp(guided[0] - exact.log_evidence), 1.0)
    np.testing.assert_array_equal(guided[3][0], [False, True, False, True])
    # After the missing observation there are no weights yet; before, each filter resampled.
    shares = np.mean(guided[1], axis=0), np.mean(free[1], axis=0)
    assert shares[0][1] > 5 * shares[1][1]
    assert within_errors(guided[2], exact.means)


def test_guided_jumps_stay_inside_the_domain(getkey):
    # The logarithm of a geometric Brownian motion of rate noise**2 / 2 is a Brownian motion.
    times, seen, noise, start, error = np.array([0.3, 0.6]), np.array([-0.5, 0.4]), 0.6, 0.3, 0.02
    of_log = lambda x, y: norm.logpdf(y, jnp.log(x[0]), error)
    data = df.ExactGeometricBrownian(), times, seen, of_log
    params = {"rate": noise**2 / 2, "noise": noise}
    options = {"initial": df.LogNormal(0.0, start), "params": params}
    [guided] = with_each_proposal(["guided"], getkey(), *data, **options)
    covariance = start**2 + noise**2 * np.minimum(*np.meshgrid(times, times)) + error**2 * np.eye(2)
    exact = multivariate_normal.logpdf(seen, np.zeros(2), covariance)
    assert within_errors(np.exp(guided[0] - exact), 1.0)
    assert np.all(guided[2] > 0)


def test_jumps_are_guided_only_where_that_pays(getkey):
    times, seen = np.arange(1, 9) * 0.3, np.zeros(8)
    for noise, expected in ((0.01, 1.0), (1.0, 1 / 8)):
        observe = lambda x, y, noise=noise: norm.logpdf(y, x[0], noise)
        found = df.filter(getkey(), LINE, times, seen, observe, 500, initial=[0.0])
        assert np.mean(found.guided) == expected
