"""The parts of the study of short rates that do not need a training."""

import argparse
import pathlib
import sys
import types

import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from diracflow.sde.conditioning import conditioning_laws

pytest.importorskip("numpyro")
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "experiments"))
import rate_densities
import rate_grid
import rate_series
import rate_simulated

PARAMS = {"rate": 2.0, "level": 0.3, "noise": 0.2}


@pytest.fixture(scope="module")
def path():
    return np.asarray(rate_simulated.simulate(jr.key(3), PARAMS, 40))


def test_grid_likelihood_tends_to_the_exact_one(path):
    times = rate_simulated.observed_times(40)
    exact = float(df.log_likelihood(df.ExactCIR(), times, path, PARAMS))
    coarse, fine = (
        rate_grid.grid_log_likelihood(PARAMS, rate_simulated.GAP, path, nodes) - exact
        for nodes in (200, 400)
    )
    # Second order in the spacing: a fourth, give or take the next order.
    assert abs(fine) < 0.1
    assert 3 < coarse / fine < 5


def test_weights_move_a_normal_posterior_by_their_slope():
    z = np.random.default_rng(0).normal(size=200_000)
    found = rate_simulated.shift({"rate": 1.0 + 0.2 * z}, 0.1 * z)
    # Weights exp(a z) shift a normal law by a deviations and leave exp(-a^2) of the draws; standard
    # errors are 1 / sqrt(200000).
    np.testing.assert_allclose(found["shift"]["rate"], 0.1, atol=0.01)
    np.testing.assert_allclose(found["effective_share"], np.exp(-0.01), atol=0.01)
    assert rate_simulated.shift({"rate": z}, np.zeros_like(z))["shift"]["rate"] == pytest.approx(0)


def test_intervals_and_summary():
    draws = {"rate": np.linspace(0, 1, 1001)}
    inside = [rate_simulated.covered(draws, {"rate": r})["rate"] for r in (0.04, 0.06, 0.94, 0.96)]
    assert inside == [False, True, True, False]
    rows = [
        {"shift": {"rate": s}, "effective_share": 1 - s, "covered": {"rate": s > 0}, "outside": 0.0}
        for s in (0.3, -0.4)
    ]
    found = rate_simulated.summary(rows)
    assert found["coverage"]["rate"] == 0.5
    assert found["shift_largest"]["rate"] == pytest.approx(0.4)
    assert found["shift_rms"]["rate"] == pytest.approx(np.sqrt(0.125))


def test_drawn_parameters_lie_in_their_prior():
    params, states = rate_simulated.drawn(jr.key(1), 5)
    assert states.shape == (6, 1)
    assert np.all(states > 0)
    for name, law in rate_simulated.PRIOR.items():
        assert law.low <= params[name] <= law.high


def test_densities_are_read_back_and_others_refused(tmp_path, monkeypatch):
    model = df.models.cir_family()
    problem = rate_densities.Problem("cir", model.sde, model.starts, 0.5, model.params)
    laws = conditioning_laws(model.sde, model.starts, model.params, None)
    # All that is looked at; building even the source of a real density compiles for a minute.
    held = types.SimpleNamespace(scope=laws, starts=laws.starts, horizon=0.5)
    monkeypatch.setattr(df, "load", lambda path, sde: held)
    file = tmp_path / "cir.dflow"
    file.touch()
    assert rate_densities.learned_density(problem, file, None, "quick") is held
    wider = problem._replace(params=dict(model.params) | {"rate": df.Uniform(1.0, 5.0)})
    elsewhere = problem._replace(starts=df.LogNormal(-1.2, 0.5))
    for wrong in (wider, elsewhere, problem._replace(horizon=1.0)):
        with pytest.raises(ValueError, match="learned anew"):
            rate_densities.learned_density(wrong, file, None, "quick")


def test_the_series_ends_at_the_floor_and_says_what_is_missing(monkeypatch):
    dates, rates = np.arange(5.0), np.array([0.05, 0.04, 0.03, 0.001, 0.02])
    found = rate_series.above(0.005, dates, rates)
    np.testing.assert_array_equal(found, [dates[:3], rates[:3]])
    np.testing.assert_array_equal(rate_series.above(1e-4, dates, rates)[1], rates)
    with pytest.raises(ValueError, match="only 0 rates"):
        rate_series.above(0.06, dates, rates)
    monkeypatch.setitem(sys.modules, "statsmodels.datasets", None)
    with pytest.raises(ImportError, match="pip install statsmodels"):
        rate_series.treasury_bills(0.005)


def test_cir_is_ckls_with_the_exponent_one_half():
    # The noise of CKLS is stated at five per cent.
    ckls = {"rate": 0.3, "level": 0.05, "noise": 0.07 * np.sqrt(0.05), "exponent": 0.5}
    cir = {"rate": 0.3, "level": 0.05, "noise": 0.07}
    x = np.array([0.02])
    one, other = rate_series.ckls_sde().at(ckls), df.models.cir_family().sde.at(cir)
    np.testing.assert_allclose(one.diffusion(0.0, x), other.diffusion(0.0, x), rtol=1e-14)
    np.testing.assert_allclose(one.drift(0.0, x), other.drift(0.0, x), rtol=1e-14)


@pytest.mark.slow
def test_with_the_exact_density_nothing_is_shifted():
    options = argparse.Namespace(length=10, warmup=20, draws=20, replications=2, seed=0)
    found = rate_simulated.replicate(df.ExactCIR(), options)
    assert max(found["shift_largest"].values()) < 1e-9
    assert found["least_effective_share"] == pytest.approx(1.0)
    assert set(found["coverage"]) == set(PARAMS)
