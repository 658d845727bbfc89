"""Likelihood of observed paths, with exact densities."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import diracflow as df

OU = df.ExactOrnsteinUhlenbeck()
PARAMS = {"rate": 0.8, "level": 0.3, "noise": 0.6}
TIMES = np.array([0.0, 0.2, 0.9, 1.0, 2.5, 2.7])


def path(key, times=TIMES, batch=()):
    """Return one path of the OU process, or several."""
    states = [jnp.full((*batch, 1), 0.5)]
    for one, gap in zip(jr.split(key, len(times) - 1), np.diff(times), strict=True):
        states.append(OU.sample(one, gap, states[-1], params=PARAMS))
    return np.array(jnp.stack(states, axis=-2))


def test_an_ou_path_is_a_gaussian_vector(getkey):
    # An independent formula: mean and covariance function of the process from a fixed start.
    x = path(getkey())
    t = TIMES[1:]
    mean = 0.3 + np.exp(-0.8 * t) * (x[0, 0] - 0.3)
    s, u = np.minimum.outer(t, t), np.add.outer(t, t)
    covariance = 0.6**2 / 1.6 * (np.exp(-0.8 * (u - 2 * s)) - np.exp(-0.8 * u))
    expected = multivariate_normal(mean, covariance).logpdf(x[1:, 0])
    # The covariance has a condition number of order 1e2.
    np.testing.assert_allclose(df.log_likelihood(OU, TIMES, x, PARAMS), expected, rtol=1e-12)


def test_paths_lie_along_leading_axes(getkey):
    x = path(getkey(), batch=(2, 3))
    values = df.log_likelihood(OU, TIMES, x, PARAMS)
    assert values.shape == (2, 3)
    np.testing.assert_allclose(values[1, 2], df.log_likelihood(OU, TIMES, x[1, 2], PARAMS))
    rates = np.array([0.5, 0.8, 2.0])
    own = df.log_likelihood(OU, np.stack([TIMES] * 3), x[0], PARAMS | {"rate": rates})
    one = df.log_likelihood(OU, TIMES, x[0, 2], PARAMS | {"rate": 2.0})
    np.testing.assert_allclose(own[2], one, rtol=1e-13)


def test_a_missing_state_joins_its_gaps(getkey):
    x = path(getkey(), batch=(2,))
    x[0, [0, 3]] = np.nan  # the first path only, its first row included
    kept = [1, 2, 4, 5]
    values = df.log_likelihood(OU, TIMES, x, PARAMS)
    alone = df.log_likelihood(OU, TIMES[kept], x[0, kept], PARAMS)
    np.testing.assert_allclose(values[0], alone, rtol=1e-13)
    np.testing.assert_allclose(values[1], df.log_likelihood(OU, TIMES, x[1], PARAMS), rtol=1e-13)


def test_gradients_in_parameters_and_states(getkey):
    x = jnp.asarray(path(getkey()))
    value = lambda x, p: df.log_likelihood(OU, TIMES, x, p)
    in_x, in_p = jax.jit(jax.grad(value, argnums=(0, 1)))(x, PARAMS)
    # Interior states enter two transitions, as their end and as their start.
    gap = np.diff(TIMES)
    ends = OU.score(x[1:], gap, x[:-1], PARAMS)[1:-1]
    np.testing.assert_allclose(
        in_x[2:-1], ends + OU.start_score(x[1:], gap, x[:-1], PARAMS)[2:], rtol=1e-12
    )
    step = 1e-5
    around = [value(x, PARAMS | {"noise": 0.6 + e}) for e in (step, -step)]
    # Central differences: an error of order step**2 relative to the third derivative, about 1e3.
    np.testing.assert_allclose(in_p["noise"], (around[0] - around[1]) / (2 * step), rtol=1e-6)


def test_even_gaps_count_as_one(getkey):
    times = np.linspace(0, 1, 11)  # whose differences are equal but for rounding
    x = path(getkey(), times)
    terms = OU.log_prob(x[1:], np.diff(times), x[:-1], PARAMS)
    np.testing.assert_allclose(df.log_likelihood(OU, times, x, PARAMS), terms.sum(), rtol=1e-13)


def test_gaps_beyond_the_horizon_are_counted():
    times = np.array([0.0, 0.1, 0.5, 0.6, 1.6])
    source = df.SourceDensity(df.EulerSource(df.models.benes().sde), horizon=0.3)
    with pytest.raises(ValueError, match="2 of 4 gaps.*horizon 0.3.*longest is 1"):
        df.log_likelihood(source, times, np.zeros((5, 2)))


def test_known_data_are_checked_while_tracing():
    run = jax.jit(lambda p: df.log_likelihood(OU, [0.0, 1.0, 0.5], np.zeros((3, 1)), p))
    with pytest.raises(ValueError, match="1 negative"):
        run(PARAMS)


def test_bad_times_are_noticed_under_jit():
    run = jax.jit(lambda t: df.log_likelihood(OU, t, np.zeros((3, 1)), PARAMS))
    with pytest.raises(Exception, match="must lie in"):
        jax.block_until_ready(run(jnp.array([0.0, 1.0, 0.5])))


ONES = np.ones((3, 1))
BAD_PATHS = {
    "duplicate": ([0.0, 1.0, 1.0], ONES, "1 gaps are zero and 0 negative.*merge"),
    "decreasing": ([0.0, 1.0, 0.5], ONES, "0 gaps are zero and 1 negative.*Sort"),
    "nan time": ([0.0, np.nan, 1.0], ONES, "`times` must be finite"),
    "one point": ([0.0], np.ones((1, 1)), "at least two observed states; got one with 1"),
    "all missing": ([0.0, 1.0, 2.0], ONES * np.nan, "at least two.*with 0"),
    "infinite": ([0.0, 1.0, 2.0], ONES * np.inf, "must be finite, or NaN"),
    "lengths": ([0.0, 1.0], ONES, r"\(3, 1\) and \(2,\)"),
    "wide states": ([0.0, 1.0, 2.0], np.ones((3, 2)), r"\(\.\.\., times, 1\).*\(3, 2\)"),
    "no paths": ([0.0, 1.0, 2.0], np.ones((0, 3, 1)), "at least two"),
    "dates": (np.array(["2020-01-01"] * 3, dtype="datetime64[D]"), ONES, "`times` must be"),
}


@pytest.mark.parametrize("times, states, message", BAD_PATHS.values(), ids=BAD_PATHS)
def test_bad_paths_are_refused(times, states, message):
    with pytest.raises(ValueError, match=message):
        df.log_likelihood(OU, times, states, PARAMS)


def test_half_missing_states_are_refused():
    x = np.array([[0.0, 0.0], [np.nan, 0.0], [0.0, 0.0]])
    with pytest.raises(ValueError, match="some components NaN"):
        df.log_likelihood(df.models.benes().exact, [0.0, 1.0, 2.0], x)
