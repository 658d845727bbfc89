"""Densities learned over times of the start, for coefficients that depend on time."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from diracflow.evaluate.consistency import chapman_kolmogorov
from helpers import still_density

SEASONAL = df.models.seasonal()
X, X0 = np.array([0.2]), np.array([0.4])
HORIZON = 0.15


@pytest.fixture(scope="module")
def learned():
    """From Euler's step, which knows the season at the start only."""
    return df.learn(
        *(SEASONAL.sde, SEASONAL.starts, HORIZON),
        key=jr.key(0),
        start_time=SEASONAL.start_time,
        source="euler",
        preset="quick",
        tolerance=3e-2,
        hidden=4,
        layers=2,
        samples=512,
        certify=False,
    )


@pytest.mark.parametrize("s", [0.0, 0.3, 0.8])
def test_exact_density_solves_the_equation_from_every_start_time(s):
    def log_prob(x, t):
        return SEASONAL.exact.log_prob(x, t, X0, start_time=s)

    x, t = jnp.array(X), jnp.asarray(0.4)
    rate = df.log_density_rate(SEASONAL.sde, lambda x: log_prob(x, t), s + t, x)
    # Exact derivatives on both sides: only rounding differs.
    np.testing.assert_allclose(rate, jax.grad(log_prob, 1)(x, t), rtol=1e-10)


def test_the_flow_learns_the_season(learned):
    g = np.asarray(learned.scope.law.sample(jr.key(5), (32,)))
    found, before = (
        df.errors(d, SEASONAL.exact, [HORIZON], g[:, :1], start_time=g[:, 1]).squared_l2.mean(1)
        for d in (learned, learned.source_only())
    )
    # The budget of 3e-2 nats allows for 1e-3 of squared error, the small flow for a few times that.
    assert found[0] < 5e-3
    assert found[0] < 0.1 * before[0]


@pytest.mark.slow
def test_linear_equations_need_no_flow():
    density = still_density(SEASONAL)
    assert density.provenance.plan.source == "moments"
    g = np.asarray(density.scope.law.sample(jr.key(5), (32,)))
    found = df.errors(density, SEASONAL.exact, [0.1, 1.0], g[:, :1], start_time=g[:, 1])
    # Simpson's rule over the longest of 24 steps, h = 1/12, errs by h^5 (2 pi)^4 / 2880 = 2e-6 in
    # the mean, where the deviation is 0.25; its square is 1e-10, and a few steps add up.
    assert np.max(found.squared_l2) < 1e-8
    assert np.max(found.squared_l2[0]) < 1e-15


def test_queries_take_the_start_time(learned):
    times = np.array([0.0, 0.25, 1.0])
    values = learned.log_prob(X, HORIZON, X0, start_time=times)
    exact = SEASONAL.exact.log_prob(X, HORIZON, X0, start_time=times)
    # A few times the tolerance: the faces of the box are reached by few points.
    np.testing.assert_allclose(values, exact, atol=0.15)
    slope, exact_slope = (
        jax.grad(lambda s, d=d: d.log_prob(X, HORIZON, X0, start_time=s))(0.3)
        for d in (learned, SEASONAL.exact)
    )
    assert abs(slope - exact_slope) < 0.2 * (1 + abs(exact_slope))
    assert learned.sample(jr.key(0), HORIZON, X0, (4,), start_time=times).shape == (4, 3, 1)
    frozen = learned.at(HORIZON, X0, start_time=0.25)
    np.testing.assert_allclose(frozen.logpdf(X), values[1], rtol=1e-12)
    assert not np.any(learned.outside(X0, start_time=times))


def test_bad_start_times_are_refused(learned):
    with pytest.raises(ValueError, match="pass it"):
        learned.log_prob(X, 0.1, X0)
    with pytest.raises(ValueError, match=r"`start_time` must lie in \[0, 1\]"):
        learned.log_prob(X, 0.1, X0, start_time=1.5)
    plain = df.models.ornstein_uhlenbeck(1).exact
    with pytest.raises(ValueError, match="only for starts at time 0"):
        plain.log_prob(X, 0.5, X0, start_time=0.2)
    np.testing.assert_array_equal(
        plain.log_prob(X, 0.5, X0, start_time=0.0), plain.log_prob(X, 0.5, X0)
    )
    with pytest.raises(ValueError, match="law of one number"):
        df.learn(
            *(SEASONAL.sde, SEASONAL.starts, 1.0),
            key=jr.key(0),
            start_time=df.Uniform([0.0, 0.0], [1.0, 1.0]),
        )


def test_likelihood_counts_each_transition_from_its_own_time(learned):
    times, states = np.array([0.1, 0.2, 0.35]), np.array([[0.2], [0.4], [0.3]])
    expected = sum(
        SEASONAL.exact.log_prob(states[i + 1], times[i + 1] - times[i], states[i], start_time=s)
        for i, s in enumerate(times[:-1])
    )
    np.testing.assert_allclose(df.log_likelihood(SEASONAL.exact, times, states), expected)
    assert abs(df.log_likelihood(learned, times, states) - expected) < 0.3
    with pytest.raises(ValueError, match="start_time"):
        df.log_likelihood(learned, times + 1, states)


def test_bridges_know_the_season():
    x0, x1, t, s, middle = np.zeros(1), np.zeros(1), 0.5, 0.1, 0.25
    found = df.bridge(
        *(jr.key(0), SEASONAL.exact, x0, x1, t, 80, 4000), sde=SEASONAL.sde, start_time=s
    )
    index = int(np.argmin(np.abs(np.asarray(found.times) - middle)))
    middle = float(found.times[index])
    # The exact conditional law, half way: a product of two Gaussians in the state.
    x = np.linspace(-2, 2, 2001)[:, None]
    first = SEASONAL.exact.prob(x, middle, x0, start_time=s)
    second = SEASONAL.exact.prob(x1, t - middle, x, start_time=s + middle)
    weights = np.asarray(first * second)
    mean = np.sum(weights * x[:, 0]) / weights.sum()
    deviation = np.sqrt(np.sum(weights * (x[:, 0] - mean) ** 2) / weights.sum())
    # Five standard errors, and a few of the Euler steps of 1/160: without the season the mean is 0.
    estimate = float(found.mean(lambda path: path[index, 0]))
    tolerance = 5 * deviation / np.sqrt(4000 * found.effective_share) + 0.01
    assert mean > 4 * tolerance
    assert abs(estimate - mean) < tolerance


def test_bridges_stay_within_the_start_times_learned(learned):
    with pytest.raises(ValueError, match=r"bridge.*\[0, 1\]"):
        df.bridge(jr.key(0), learned, X0, X, HORIZON, 20, 8, start_time=0.9)
    found = df.bridge(jr.key(0), learned, X0, X, HORIZON, 20, 200, start_time=0.2)
    exact = float(SEASONAL.exact.log_prob(X, HORIZON, X0, start_time=0.2))
    # An error of first order in the Euler steps of 1/133.
    assert abs(found.log_density - exact) < 0.2
    assert found.outside == 0.0


@pytest.mark.slow
def test_filters_move_on_in_time():
    observe = lambda x, y: -0.5 * (y - x[0]) ** 2 / 0.04
    missing = np.full(3, np.nan)
    times = np.array([0.2, 0.5, 0.9])
    found = df.filter(
        *(jr.key(0), SEASONAL.exact, times, missing, observe, 4000), initial=X0, start=0.1
    )
    # Nothing is observed: what is left is the law from the start on.
    draws = SEASONAL.exact.sample(jr.key(1), times - 0.1, X0, (4000,), start_time=0.1)
    spread = np.sqrt(2 * np.asarray(draws.var(axis=0)) / 4000)
    assert np.all(np.abs(found.means - draws.mean(axis=0)) < 5 * spread)
    with pytest.raises(ValueError, match="start="):
        df.filter(jr.key(0), SEASONAL.exact, times, missing, observe, initial=X0)


@pytest.mark.slow
def test_half_steps_start_at_their_own_times(learned):
    found = chapman_kolmogorov(learned, jr.key(0), HORIZON, X0, start_time=0.3)
    # The two halves err on their own. From the same time they would differ by far more.
    assert found.squared < 5 * found.stderr + 1e-2


def test_round_trip_keeps_the_law_of_start_times(learned, tmp_path):
    path = tmp_path / "model.dflow"
    learned.save(path)
    again = df.load(path)
    assert again.start_time is None
    assert again.start_time_bounds == (0.0, 1.0)
    np.testing.assert_array_equal(
        again.log_prob(X, 0.1, X0, start_time=0.7), learned.log_prob(X, 0.1, X0, start_time=0.7)
    )
