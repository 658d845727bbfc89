import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.scipy.stats import norm

import diracflow as df

OU = df.models.ornstein_uhlenbeck(2, rate=[[1.0, 0.5], [-0.3, 0.8]], noise=[[0.8, 0.0], [0.3, 0.6]])
INITIAL = df.Normal([0.5, -0.5], 0.7)
# The first component is observed, at unequal gaps, once at the start; one observation is missing.
TIMES = np.array([0.0, 0.3, 0.7, 1.5, 1.6, 2.4])
SEEN = np.array([0.9, 0.4, -0.2, np.nan, 0.1, -0.6])[:, None]
NOISE, RUNS, PARTICLES = 0.4, 32, 400
LINE = df.SourceDensity(df.EulerSource(df.models.brownian(1).sde), horizon=0.4)
MATRIX = np.array([[1.0, 0.0]]), np.array([[NOISE**2]])


def observe(x, y):
    return norm.logpdf(y[0], x[0], NOISE)


@pytest.fixture(scope="module")
def replicates():
    """Return the smoothed laws and paths for 32 keys."""
    run = lambda key: df.smooth(key, OU.exact, TIMES, SEEN, observe, PARTICLES, initial=INITIAL)
    return [run(key) for key in jr.split(jr.key(5), RUNS)]


def within_errors(values, exact):
    """Return `True` if means over replicates agree with `exact` within standard errors."""
    values = np.asarray(values)
    error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    # Student's t with 31 degrees of freedom exceeds 6 about once in a million.
    return np.all(np.abs(values.mean(axis=0) - exact) < 6 * error)


def test_means_and_variances_are_those_of_the_kalman_smoother(replicates):
    exact = df.evaluate.kalman_smoother(OU.exact, TIMES, SEEN, *MATRIX, INITIAL)
    filtered = df.evaluate.kalman_filter(OU.exact, TIMES, SEEN, *MATRIX, INITIAL)
    assert within_errors([found.means for found in replicates], exact.means)
    variances = np.diagonal(exact.covariances, axis1=1, axis2=2)
    assert within_errors([found.variances for found in replicates], variances)
    # The comparison is sharp: laws of the filter are far from those of the smoother.
    assert not within_errors([found.means for found in replicates], filtered.means)


def test_paths_have_the_joint_law_of_consecutive_states(replicates):
    # By the recursion of Rauch, Tung and Striebel, cov(x_k, x_{k+1}) is the gain times P_{k+1}.
    exact = df.evaluate.kalman_smoother(OU.exact, TIMES, SEEN, *MATRIX, INITIAL)
    filtered = df.evaluate.kalman_filter(OU.exact, TIMES, SEEN, *MATRIX, INITIAL)
    law = OU.exact.at(0.4, np.zeros(2))
    decay = np.asarray(jax.jacobian(lambda x0: OU.exact.at(0.4, x0).mean())(np.zeros(2)))
    before = filtered.covariances[1]
    gain = np.linalg.solve(decay @ before @ decay.T + law.cov(), decay @ before).T
    pairs = [np.cov(np.asarray(f.paths[:, 1:3]).reshape(len(f.paths), 4).T) for f in replicates]
    assert within_errors([pair[:2, 2:] for pair in pairs], gain @ exact.covariances[2])


def test_backward_steps_leave_more_different_states_than_genealogies(replicates):
    key, options = jr.key(1), {"initial": INITIAL, "candidates": 0}
    genealogies = df.smooth(key, OU.exact, TIMES, SEEN, observe, PARTICLES, **options)
    mean = np.mean([found.distinct for found in replicates], axis=0)
    assert np.all(mean[:3] > genealogies.distinct[:3])
    law = replicates[0].at(1)
    np.testing.assert_allclose(law.mean(), replicates[0].means[1], rtol=1e-9)
    with pytest.raises(ValueError, match="one of 6 times; got 6"):
        replicates[0].at(6)


@pytest.fixture(scope="module")
def across():
    """Return paths of a Brownian motion from 0, known to be near 1 at t=1, beyond the horizon."""
    sharp = lambda x, y: norm.logpdf(y, x[0], 0.01)
    return df.smooth(3, LINE, [1.0], [1.0], sharp, 2000, initial=[0.0], paths=400)


def test_states_inside_a_long_gap_are_those_of_a_brownian_bridge(across):
    times, states = np.asarray(across.chain.times), np.asarray(across.chain.states[..., 0])
    np.testing.assert_allclose(times, [0.0, 1 / 3, 2 / 3, 1.0])
    # The observation adds 1e-4 to variances, far below the errors. Means and variances over 400
    # paths have standard errors of 1/20 standard deviations and 7 %, enlarged by repetitions.
    share = float(jnp.min(across.distinct))
    assert share > 0.1
    error = 5 / np.sqrt(400 * share)
    deviations = np.sqrt(times * (1 - times))[1:3]
    np.testing.assert_array_less(np.abs(states[:, 1:3].mean(0) - times[1:3]), error * deviations)
    ratios = states[:, 1:3].var(0) / deviations**2
    np.testing.assert_array_less(np.abs(ratios - 1), np.sqrt(2) * error)


def test_bridges_between_states_fill_the_gaps(across, getkey):
    filled = across.bridged(getkey(), 4, 300, sde=df.models.brownian(1).sde)
    states, times = np.asarray(filled.states[..., 0]), np.asarray(filled.times)
    assert states.shape == (300, 13)
    knots = times[::4]
    np.testing.assert_allclose(knots, across.chain.times)
    ends = states[:, ::4]
    line = np.stack([np.interp(times, knots, row) for row in ends])
    inner = np.setdiff1d(np.arange(13), np.arange(0, 13, 4))
    # About the line between its ends, Brownian motion has the variance u (1 - u) h.
    u = (times[inner] * 3) % 1
    z = (states - line)[:, inner] / np.sqrt(u * (1 - u) / 3)
    # Means and squares of the 300 paths are independent.
    np.testing.assert_array_less(np.abs(z.mean(axis=0)), 5 / np.sqrt(300))
    np.testing.assert_array_less(np.abs((z**2).mean(axis=0) - 1), 5 * np.sqrt(2 / 300))


def test_few_different_states_are_reported(getkey):
    sharp = lambda x, y: norm.logpdf(y, x[0], 1e-3)
    data = [0.1, 0.2, 0.3], [0.1, 0.4, 0.5], sharp, 30
    with pytest.warns(UserWarning, match="All paths pass through .* Use more `particles`"):
        df.smooth(getkey(), LINE, *data, initial=[0.0], candidates=0, proposal="bootstrap")


def test_missing_observations_alone_are_reported(getkey):
    with pytest.warns(UserWarning, match="All observations are missing"):
        df.smooth(getkey(), LINE, [0.1], [np.nan], lambda x, y: 0.0 * x[0], 30, initial=[0.0])


def test_mistakes_and_lost_particles_are_refused(getkey):
    band = lambda x, y: jnp.where(jnp.abs(y - x[0]) < 5, 0.0, -jnp.inf)
    run = lambda times, seen, **options: df.smooth(
        getkey(), LINE, times, seen, band, 30, initial=[0.0], **options
    )
    with pytest.raises(ValueError, match="must increase; got 0.1 then 0.1"):
        run([0.1, 0.1], [0.0, 0.0])
    with pytest.raises(ValueError, match="`candidates` must be at least 0"):
        run([0.1, 0.2], [0.0, 0.0], candidates=-1)
    with pytest.raises(df.WeightsVanished, match="weight zero at observation 1 at t=0.2"):
        run([0.1, 0.2], [0.0, 90.0])
