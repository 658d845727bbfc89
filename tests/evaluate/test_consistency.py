"""Checks without an exact solution accept good densities and reject bad ones."""

import json

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import diracflow as df
from diracflow.cli.model_commands import check_model, check_text
from diracflow.evaluate.consistency import agreement_with_paths, chapman_kolmogorov
from diracflow.sde.heun import heun_paths

X0 = np.array([0.4, -0.3])


@pytest.mark.slow
def test_half_steps_agree_with_whole_ones(trained, getkey):
    found = chapman_kolmogorov(trained, getkey(), 0.3, X0)
    # The recorded error of this training is 1e-3 in total variation, below the sampling error.
    assert abs(found.squared) < 4 * found.stderr
    assert found.stderr < 1e-3


@pytest.mark.slow
def test_half_steps_find_a_density_that_does_not_add_up(trained, getkey):
    class Slow(df.TransitionDensity):
        """A density whose time is scaled in the second half."""

        def _at_time(self, t):
            return super()._at_time(jnp.where(t > 0.2, 0.8 * t, t))

    slow = Slow(trained.ansatz, trained.trajectory, trained.starts, trained.provenance)
    found = chapman_kolmogorov(slow, getkey(), 0.3, X0)
    # The criterion by which `diracflow check` rejects a model.
    assert found.squared > 4 * found.stderr
    assert found.discrepancy > 0.05


def test_time_dependent_equations_have_no_half_steps(trained, getkey):
    sde = df.SDE(lambda t, x: -t * x, lambda t, x: jnp.eye(2), 2)
    density = eqx.tree_at(lambda d: d.chart.sde, trained, sde)
    with pytest.raises(ValueError, match="depends on time"):
        chapman_kolmogorov(density, getkey(), 0.3, X0)


def test_draws_agree_with_paths(trained, getkey):
    found = agreement_with_paths(trained, getkey(), 0.3, X0, paths=1000, steps=200)
    # Four standard errors: a correct density fails for one key in several thousand.
    assert max(found.mean_z, found.covariance_z, found.energy_z) < 4


def test_paths_find_a_shift(trained, getkey):
    class Shifted(df.TransitionDensity):
        """A density whose draws are shifted by a third of a standard deviation."""

        def _from_noise(self, state, noise, x0):
            return super()._from_noise(state, noise, x0) + 0.2

    shifted = Shifted(trained.ansatz, trained.trajectory, trained.starts, trained.provenance)
    found = agreement_with_paths(shifted, getkey(), 0.3, X0, paths=1000, steps=200)
    assert min(found.mean_z, found.energy_z) > 4


def test_simulated_paths_have_the_moments_of_a_linear_sde(getkey):
    model = df.models.ornstein_uhlenbeck(1, rate=1.5, noise=0.8)
    starts, until = jnp.ones((4000, 1)), jnp.array([0.5])
    ends = np.asarray(heun_paths(model.sde, 0.0, getkey(), starts, until, 400))
    exact_mean, exact_var = np.exp(-0.75), 0.64 * (1 - np.exp(-1.5)) / 3
    # Four standard errors, and a bias of order one over the number of steps.
    assert abs(ends.mean() - exact_mean) < 4 * np.sqrt(exact_var / 4000) + 1 / 400
    assert abs(ends.var() - exact_var) < 4 * exact_var * np.sqrt(2 / 4000) + 1 / 400


def test_exploding_paths_are_told(trained, getkey):
    sde = df.SDE(lambda t, x: 1e4 * x**3, lambda t, x: jnp.eye(2), 2)
    density = eqx.tree_at(lambda d: d.chart.sde, trained, sde)
    with pytest.raises(ValueError, match="not finite at t=0.3.*Increase `steps`"):
        agreement_with_paths(density, getkey(), 0.3, X0, paths=10, steps=50)


@pytest.mark.slow
def test_check_passes_a_good_model_and_fails_a_strict_limit(trained, tmp_path, monkeypatch):
    monkeypatch.setattr("diracflow.cli.model_commands._SHARES", (1.0,))
    path = tmp_path / "model.dflow"
    trained.save(path)
    report = check_model(path, None, 0.1, 0)
    assert report["passed"], check_text(report)
    assert [row["start"] for row in report["rows"]] == ["centre", "edge"]
    json.dumps(report, allow_nan=False)
    text = check_text(report)
    assert "passed" in text
    assert "centre" in text
    with pytest.raises(ValueError, match="`--limit`"):
        check_model(path, None, 0.0, 0)
    tight = check_model(path, None, 1e-9, 0)
    assert not tight["passed"]
    assert "<- distance" in check_text(tight)
