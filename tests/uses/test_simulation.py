"""Paths by exact jumps, and stationary laws."""

import jax.numpy as jnp
import numpy as np
import pytest

import diracflow as df

OU = df.models.ornstein_uhlenbeck(1, rate=1.5, level=0.4, noise=0.8).exact


def test_paths_have_the_laws_of_the_density():
    times = [0.3, 1.0, 1.4]
    paths = df.simulate(0, OU, times, [1.0], paths=20_000)
    assert paths.states.shape == (20_000, 3, 1)
    law = OU.at(np.array(times), [1.0])
    spread = np.asarray(law.std())
    # Five standard errors of a mean and of a standard deviation.
    assert np.all(np.abs(paths.states.mean(axis=0) - law.mean()) < 5 * spread / np.sqrt(20_000))
    assert np.all(np.abs(paths.states.std(axis=0) / spread - 1) < 5 / np.sqrt(40_000))
    # The correlation of two times of an Ornstein--Uhlenbeck process.
    a, b = np.asarray(paths.states)[:, 1:, 0].T
    expected = np.exp(-1.5 * 0.4) * spread[1, 0] / spread[2, 0]
    assert abs(np.corrcoef(a, b)[0, 1] - expected) < 0.02


def test_gaps_beyond_the_horizon_are_crossed():
    short = df.ComposedDensity(OU, horizon=0.5, reach=0.5)
    paths = df.simulate(1, short, [2.0], [1.0], paths=5000)
    assert abs(float(paths.states.mean()) - float(OU.at(2.0, [1.0]).mean()[0])) < 0.04


def test_the_start_itself_may_be_asked_for():
    states = df.simulate(0, OU, [0.0, 1.0], [0.7], paths=4).states
    np.testing.assert_array_equal(states[:, 0], np.full((4, 1), 0.7))
    assert df.simulate(0, OU, [0.0, 1.0], 0.7, paths=4).states.shape == (4, 2)
    assert df.simulate(0, OU, [1.0], df.Normal(0.0, 1.0), paths=4).states.shape == (4, 1, 1)


def test_paths_become_an_xarray():
    pytest.importorskip("xarray")
    array = df.simulate(0, df.models.benes().exact, [0.5, 1.0], np.zeros(2), paths=3).to_xarray()
    assert array.dims == ("path", "time", "component")
    assert float(array.sel(time=0.5).mean()) == float(array[:, 0].mean())
    assert df.simulate(0, OU, [0.5], 0.1).to_xarray().dims == ("path", "time")


def test_seasons_need_their_start():
    density = df.models.seasonal().exact
    with pytest.raises(ValueError, match="start=..."):
        df.simulate(0, density, [0.5], [0.0])
    assert df.simulate(0, density, [0.5, 0.9], [0.0], start=0.25).states.shape == (1, 2, 1)


@pytest.mark.parametrize(
    "times, x0, message",
    [
        ([1.0, 0.5], [0.1], "must increase"),
        ([0.5, 0.5], [0.1], "must increase"),
        ([-0.5, 0.5], [0.1], "before the start"),
        ([], [0.1], "one time or more"),
        ([np.nan], [0.1], "finite"),
        ([0.5], [0.1, 0.2], "length 1"),
        ([0.5], [np.nan], "NaN"),
        ([0.5], [[0.1], [0.2]], "one for each of the 1 paths"),
    ],
)
def test_bad_paths(times, x0, message):
    with pytest.raises(ValueError, match=message):
        df.simulate(0, OU, times, x0)


def test_stationary_laws(monkeypatch):
    law = df.stationary(OU)
    np.testing.assert_allclose(law.mean(), [0.4], rtol=1e-3)
    np.testing.assert_allclose(law.std(), [0.8 / np.sqrt(3.0)], rtol=1e-4)
    assert law.distance < 0.03
    np.testing.assert_allclose(law.cdf([0.4]), 0.5, atol=1e-3)
    params = {"rate": 2.0, "level": 0.5, "noise": 0.6}
    # Draws of these paths take long. A quarter of them resolves half as much.
    monkeypatch.setattr("diracflow.uses.long_run._DRAWS", 2048)
    starts = df.LogNormal(-1.0, 0.5)
    law = df.stationary(df.ExactCIR(), starts=starts, params=params, tolerance=0.06)
    # A gamma law.
    np.testing.assert_allclose(law.mean(), [0.5], rtol=1e-3)
    np.testing.assert_allclose(law.var(), [0.5 * 0.36 / 4], rtol=1e-2)


def test_a_short_horizon_is_composed():
    law = df.stationary(df.ComposedDensity(OU, horizon=0.5, reach=0.5))
    np.testing.assert_allclose(law.mean(), [0.4], atol=0.02)
    np.testing.assert_allclose(law.prob([0.4]), np.sqrt(3 / (2 * np.pi)) / 0.8, rtol=0.02)


def test_without_a_stationary_law():
    with pytest.raises(ValueError, match="Brownian motion"):
        df.stationary(df.models.brownian(1).exact)
    with pytest.raises(ValueError, match="depends on the start time"):
        df.stationary(df.models.seasonal().exact)


def test_propagated_and_filtered_laws_are_complete():
    law = df.propagate(OU, df.Normal(1.0, 0.3), 0.8)
    decay = np.exp(-1.5 * 0.8)
    variance = 0.09 * decay**2 + 0.64 * (1 - decay**2) / 3
    np.testing.assert_allclose(law.mean(), [0.4 + 0.6 * decay], rtol=1e-10)
    np.testing.assert_allclose(law.var(), [variance], rtol=1e-10)
    # The density is a mean over 4096 starts.
    np.testing.assert_allclose(law.cdf(law.mean()), 0.5, atol=1e-4)
    observe = lambda x, y: -0.5 * (y - x[0]) ** 2 / 0.1
    data = [0.5, 1.5], [0.3, -0.2], observe
    found = df.filter(0, OU, *data, initial=df.Normal(0.0, 1.0), history=True)
    np.testing.assert_allclose(found.at(-1).mean(), found.means[-1], rtol=1e-12)
    np.testing.assert_allclose(found.at(0).var(), found.variances[0], rtol=1e-12)
    assert abs(float(found.at(1).cdf(found.at(1).median())) - 0.5) < 1e-2
    assert found.at(1).expect(jnp.sum).stderr > 0
    with pytest.raises(ValueError, match="no density"):
        found.at(1).log_prob([0.1])
    with pytest.raises(ValueError, match="history=True"):
        df.filter(0, OU, *data, initial=df.Normal(0.0, 1.0)).at(0)
