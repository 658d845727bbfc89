"""Forecasts against exact laws, within the horizon and beyond it."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.scipy.stats import norm

import diracflow as df
from diracflow.hidden.forecasts import _DRAWS

OU = df.models.ornstein_uhlenbeck(1, rate=0.8, level=0.3, noise=0.6).exact
# For Brownian motion the Euler step is exact; this one has a horizon.
LINE = df.SourceDensity(df.EulerSource(df.models.brownian(1).sde), horizon=0.4)
NOISE = 0.3
TIMES, SEEN = np.array([0.2, 0.7, 1.0]), np.array([[0.9], [0.4], [-0.2]])


def observe(x, y):
    return norm.logpdf(y[0], x[0], NOISE)


@pytest.fixture(scope="module")
def filtered():
    initial = df.Normal(0.5, 0.7)
    return df.filter(jr.key(3), OU, TIMES, SEEN, observe, 4000, initial=initial, history=True)


def test_from_a_known_state_the_law_is_the_density():
    found = df.forecast(0, OU, 0.5, [0.5, 2.0])
    exact = OU.at(np.array([0.5, 2.0]), [0.5])
    for index in range(2):
        np.testing.assert_allclose(found.at(index).mean(), exact.mean()[index], rtol=1e-12)
    # Five standard errors of means and of Gaussian variances.
    error = np.asarray(exact.std()) / np.sqrt(_DRAWS)
    assert np.all(np.abs(found.means - exact.mean()) < 5 * error)
    np.testing.assert_allclose(found.variances, exact.var(), rtol=5 * np.sqrt(2 / _DRAWS))


def test_after_a_filter_the_law_is_that_of_the_kalman_filter(filtered):
    last = df.evaluate.kalman_filter(
        OU, TIMES, SEEN, np.eye(1), np.array([[NOISE**2]]), df.Normal(0.5, 0.7)
    )
    found = df.forecast(1, OU, filtered, [1.4, 3.0])
    for index, gap in enumerate((0.4, 2.0)):
        decay = np.exp(-0.8 * gap)
        mean = 0.3 + decay * (last.means[-1, 0] - 0.3)
        variance = decay**2 * last.covariances[-1, 0, 0] + 0.6**2 / 1.6 * (1 - decay**2)
        law = found.at(index)
        # The filter has 4000 particles, of which at least a quarter count; five standard errors.
        assert abs(law.mean()[0] - mean) < 5 * np.sqrt(variance / 1000)
        assert law.var()[0] == pytest.approx(variance, rel=5 * np.sqrt(2 / 1000))
        # The fan shows quantiles of draws of this law: five standard errors, as in the filter.
        exact = mean + np.sqrt(variance) * np.asarray(norm.ppf(np.asarray(found.levels)))
        atol = 5 * 2.1 * np.sqrt(variance / 1000)
        np.testing.assert_allclose(found.quantiles[index, :, 0], exact, atol=atol)


def test_beyond_the_horizon_the_last_jump_is_long():
    times = np.array([0.1, 0.4, 0.5, 0.8, 3.0])
    found = df.forecast(2, LINE, [0.3], times, start=0.0)
    gaps = times - found.begins
    assert np.all(gaps <= 0.4 * (1 + 1e-9))
    assert np.all(gaps[2:] > 0.2 - 1e-9), "a mixture of narrow laws has no smooth density"
    # Variances of Gaussian samples have the relative standard error sqrt(2 / n); 4096 particles.
    np.testing.assert_allclose(found.variances[:, 0], times, rtol=5 * np.sqrt(2 / 4096))
    law, x = found.at(-1), np.array([0.3])
    # The density at the centre has a relative standard error of law.standard_error.
    exact = norm.pdf(0.0, 0.0, np.sqrt(3.0))
    assert abs(law.prob(x) / exact - 1) < 5 * float(law.standard_error(x)) + 1e-12


def test_dates_parameters_and_start_times():
    pandas = pytest.importorskip("pandas")
    dates = pandas.date_range("2020-01-01", periods=3, freq="D")
    params = {"rate": 0.8, "level": 0.3, "noise": 0.6}
    keywords = {"params": params, "start": 2.0, "unit": "day", "origin": dates[0]}
    found = df.forecast(
        0, df.ExactOrnsteinUhlenbeck(), 0.5, dates + pandas.Timedelta("3D"), **keywords
    )
    np.testing.assert_allclose(found.times, [3.0, 4.0, 5.0])
    season = df.models.seasonal().exact
    later = df.forecast(0, season, 0.2, [0.75], start=0.25)
    exact = season.at(0.5, [0.2], start_time=0.25).mean()
    np.testing.assert_allclose(later.at(0).mean(), exact, rtol=1e-12)


def test_netcdf_holds_everything(filtered):
    pytest.importorskip("xarray")
    table = df.forecast(0, OU, filtered, [1.5, 2.0]).to_xarray()
    assert dict(table.sizes) == {"time": 2, "component": 1, "level": 5}
    assert bool(jnp.all(jnp.diff(table["quantile"].to_numpy(), axis=1) > 0))


def test_mistakes_are_refused(filtered):
    short = df.filter(0, OU, [0.1], [0.2], lambda x, y: 0.0 * y, 4, initial=[0.0])
    mistakes = {
        "history=True": (short, [0.5], {}),
        "lie after the present": (filtered, [0.5], {}),
        "must increase": (filtered, [2.0, 1.5], {}),
        "one finite time": (filtered, [], {}),
        "has its own times": (filtered, [2.0], {"start": 1.0}),
        "or one state": (np.zeros((3, 1)), [2.0], {}),
        "has no parameters|no parameter": (0.5, [2.0], {"params": {"rate": 1.0}}),
        "levels between 0 and 1": (0.5, [2.0], {"quantiles": [95]}),
        "unit": (0.5, np.array(["2020-01-01"], "M8[D]"), {}),
    }
    for message, (state, times, keywords) in mistakes.items():
        with pytest.raises(ValueError, match=message):
            df.forecast(0, OU, state, times, **keywords)
