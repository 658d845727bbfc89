"""Times of frames, in a stated unit."""

import jax.numpy as jnp
import numpy as np
import pytest

import diracflow as df

pandas = pytest.importorskip("pandas")
xarray = pytest.importorskip("xarray")
DATES = pandas.DatetimeIndex(["2024-01-01", "2024-01-02", "2024-01-04 12:00"])
OU = df.ExactOrnsteinUhlenbeck()
PARAMS = {"rate": 0.8, "level": 0.3, "noise": 0.6}
VALUES = np.array([0.1, 0.4, -0.2])


def test_series_and_frames():
    times, states = df.observed(pandas.Series(VALUES, DATES), "day")
    np.testing.assert_allclose(times, [0.0, 1.0, 3.5])
    np.testing.assert_array_equal(states, VALUES[:, None])
    expected = df.log_likelihood(OU, [0.0, 1.0, 3.5], VALUES[:, None], PARAMS)
    zoned = pandas.DataFrame({"x": VALUES}, DATES.tz_localize("UTC"))
    found = df.log_likelihood(OU, *df.observed(zoned, "day"), PARAMS)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    times, _ = df.observed(zoned, "hour", origin=np.datetime64("2023-12-31"))
    np.testing.assert_allclose(times, [24.0, 48.0, 108.0])
    times, _ = df.observed(pandas.Series(VALUES, [0.0, 0.5, 2.0]))
    np.testing.assert_allclose(times, [0.0, 0.5, 2.0])


def test_arrays_with_names():
    array = xarray.DataArray(np.ones((4, 3, 2)), {"time": DATES}, ("path", "time", "component"))
    times, states = df.observed(array.transpose("time", "path", "component"), "week")
    np.testing.assert_allclose(times, np.array([0.0, 1.0, 3.5]) / 7)
    assert states.shape == (4, 3, 2)
    paths = df.simulate(0, OU, [0.5, 1.0], [0.1], paths=5, params=PARAMS).to_xarray()
    assert df.observed(paths).states.shape == (5, 2, 1)


def test_what_is_refused():
    series = pandas.Series(VALUES, DATES)
    for call, message in (
        (lambda: df.observed(series), "must be stated"),
        (lambda: df.observed(series, "fortnight"), "must be stated"),
        (lambda: df.observed(series[::-1], "day"), "must increase"),
        (lambda: df.observed(VALUES, "day"), "pandas Series"),
        (lambda: df.observed(pandas.Series([1.0], ["a"]), "day"), "dates or numbers"),
        (lambda: df.observed(xarray.DataArray(VALUES, dims="t"), "day"), "dimension `time`"),
        (lambda: df.log_likelihood(OU, DATES, VALUES[:, None], PARAMS), "diracflow.observed"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_indices_and_frames_are_accepted_as_times_and_states():
    frame = pandas.DataFrame({"x": VALUES}, DATES.tz_localize("UTC"))
    array = xarray.DataArray(VALUES, {"time": DATES}, ("time",))
    plain = [0.0, 1.0, 3.5], VALUES[:, None]
    expected = df.log_likelihood(OU, *plain, PARAMS)
    for times, states in (
        (frame.index, frame),
        (frame.index, frame["x"]),
        (array.time, array),
        (pandas.Index(plain[0]), frame),
    ):
        found = df.log_likelihood(OU, times, states, PARAMS, unit="day")
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    hourly = df.log_likelihood(OU, DATES, frame, PARAMS, unit="hour")
    assert abs(hourly - expected) > 1e-3
    observe = lambda x, y: -0.5 * jnp.sum((y - x) ** 2) / 0.1
    options = {"initial": df.Normal(0.0, 1.0), "params": PARAMS, "particles": 50}
    by_frame = df.filter(0, OU, frame.index, frame, observe, unit="day", **options)
    by_array = df.filter(0, OU, *plain, observe, **options)
    np.testing.assert_array_equal(by_frame.means, by_array.means)
    start = {"rate": 1.0, "level": 0.2, "noise": 0.5}
    best = [
        df.maximum_likelihood(OU, *data, start, max_iterations=2, **unit).log_likelihood
        for data, unit in (((frame.index, frame), {"unit": "day"}), (plain, {}))
    ]
    assert best[0] == best[1]
    # The paths begin at the first date.
    on_dates, at_times = (
        df.simulate(0, OU, times, frame.iloc[0], paths=3, params=PARAMS, **unit).states
        for times, unit in ((frame.index, {"unit": "day"}), (plain[0], {}))
    )
    np.testing.assert_array_equal(on_dates, at_times)
    with pytest.raises(ValueError, match="Pass `frame.index, frame`"):
        df.log_likelihood(OU, frame, frame, PARAMS, unit="day")
    with pytest.raises(ValueError, match='must be stated: `unit="day"`'):
        df.filter(0, OU, frame.index, frame, observe, **options)
