"""Maximum likelihood of an OU process against least squares for the autoregression."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from diracflow.inference.likelihood import from_intervals, into_intervals

OU = df.ExactOrnsteinUhlenbeck()
TRUE = {"rate": 1.2, "level": 0.4, "noise": 0.5}
GAP, LENGTH = 0.5, 400
TIMES = GAP * np.arange(LENGTH + 1)


@pytest.fixture(scope="module")
def states():
    def step(x, key):
        after = OU.sample(key, GAP, x, params=TRUE)
        return after, after

    first = jnp.array([0.4])
    _, rest = jax.lax.scan(step, first, jr.split(jr.key(5), LENGTH))
    return np.concatenate([first[None], rest])


@pytest.fixture(scope="module")
def estimate(states):
    return df.maximum_likelihood(OU, TIMES, states, {"rate": 0.3, "level": -1.0, "noise": 2.0})


def ou_params(regression):
    """Return parameters of the process with steps intercept + slope * x + deviation * noise."""
    intercept, slope, log_deviation = regression
    rate = -jnp.log(slope) / GAP
    noise = jnp.exp(log_deviation) * jnp.sqrt(2 * rate / (1 - slope**2))
    return jnp.stack([rate, intercept / (1 - slope), noise])


def regression(states):
    """Return the least-squares fit, which maximises the likelihood, and its covariance."""
    design = np.stack([np.ones(LENGTH), states[:-1, 0]], axis=1)
    found, squares, *_ = np.linalg.lstsq(design, states[1:, 0], rcond=None)
    variance = squares[0] / LENGTH
    covariance = np.zeros((3, 3))
    covariance[:2, :2] = variance * np.linalg.inv(design.T @ design)
    covariance[2, 2] = 1 / (2 * LENGTH)
    return jnp.array([*found, 0.5 * np.log(variance)]), covariance


def test_the_maximum_is_that_of_the_autoregression(states, estimate):
    assert estimate.converged, estimate.message
    expected = ou_params(regression(states)[0])
    # The gradient per observation is below 1.5e-8 and the Hessian of order one.
    np.testing.assert_allclose([*estimate.params.values()], expected, rtol=1e-6)
    likelihood = df.log_likelihood(OU, TIMES, states, estimate.params)
    np.testing.assert_allclose(estimate.log_likelihood, likelihood, rtol=1e-12)


def test_the_information_is_that_of_the_autoregression(states, estimate):
    # First derivatives vanish at a maximum, so the information transforms as a tensor.
    found, covariance = regression(states)
    jacobian = jax.jacobian(ou_params)(found)
    expected = jacobian @ covariance @ jacobian.T
    np.testing.assert_allclose(estimate.covariance, expected, rtol=1e-4)
    np.testing.assert_allclose(
        [*estimate.standard_errors.values()], np.sqrt(np.diag(expected)), rtol=1e-4
    )


def test_estimates_lie_within_their_errors(estimate):
    # Five standard errors: an efficient estimate fails for about one path in a million.
    for name, value in TRUE.items():
        assert abs(estimate.params[name] - value) < 5 * estimate.standard_errors[name]


def test_what_the_data_leave_open_is_said():
    # One transition does not determine rate, level and noise.
    found = df.maximum_likelihood(
        OU,
        [0.0, 0.5],
        [[0.0], [0.3]],
        {"rate": 1.0, "level": 0.1, "noise": 1.0},
        bounds={"noise": (0.1, 5.0)},
        max_iterations=30,
    )
    assert not found.converged
    assert found.message.split(". ")[-1].split()[0] in ("Try", "Fix")
    assert 0.1 < found.params["noise"] < 5


def test_intervals_are_reached_and_left():
    intervals = ((-np.inf, np.inf), (1.0, np.inf), (-np.inf, 2.0), (-1.0, 3.0))
    values = jnp.array([0.3, 1.5, -4.0, 2.9])
    again = into_intervals(jnp.asarray(from_intervals(values, intervals)), intervals)
    np.testing.assert_allclose(again, values, rtol=1e-14)


GOOD = {"rate": 1.0, "level": 0.0, "noise": 1.0}
BAD_SEARCHES = {
    "missing": (OU, {"rate": 1.0}, None, "missing"),
    "no parameters": (df.models.brownian(1).exact, {}, None, "no parameters to estimate"),
    "negative noise": (OU, GOOD | {"noise": -1.0}, None, "`noise` must lie"),
    "outside": (OU, GOOD, {"rate": (2.0, 3.0)}, r"`rate` starts at 1.0.*\(2, 3\)"),
    "unknown bound": (OU, GOOD, {"speed": (0.0, 1.0)}, "has no `speed`"),
    "not finite": (OU, GOOD | {"rate": -1e6}, None, "not finite"),
}


@pytest.mark.parametrize("density, start, bounds, message", BAD_SEARCHES.values(), ids=BAD_SEARCHES)
def test_bad_searches_are_refused(density, start, bounds, message):
    with pytest.raises(ValueError, match=message):
        df.maximum_likelihood(density, [0.0, 0.5], [[0.0], [0.3]], start, bounds=bounds)
