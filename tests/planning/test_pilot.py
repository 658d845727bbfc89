"""Simulated paths measure how far a source is from the density."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from diracflow.planning.normality import distance_from_normal
from diracflow.planning.pilot import misfit, pilot
from diracflow.sde.heun import heun_paths
from diracflow.sde.problem import checked_problem


def lorenz(t, x):
    return jnp.stack([10 * (x[1] - x[0]), x[0] * (28 - x[2]) - x[1], x[0] * x[1] - 8 / 3 * x[2]])


def test_an_exact_source_fits_within_sampling_error():
    model = df.models.ornstein_uhlenbeck(2)
    problem = checked_problem(model.sde, model.starts, 1.0)
    paths = pilot(problem)
    # 32 estimates of five moments from 256 paths each: about 0.01 nats each, 0.002 for their mean.
    assert misfit(df.MomentSource(model.sde), paths) < 0.04


def test_a_wrong_width_is_measured_in_nats():
    model = df.models.brownian(2)
    paths = pilot(checked_problem(model.sde, model.starts, 1.0))
    wide = df.SDE(lambda t, x: jnp.zeros(2), lambda t, x: 3.0 * jnp.eye(2), 2)
    # KL from N(0, 1) to N(0, 9) in two dimensions.
    expected = np.log(9) + (1 / 9 - 1)
    np.testing.assert_allclose(misfit(df.EulerSource(wide), paths), expected, atol=0.05)


STARTS = df.Normal([0.0, 0.0, 23.0], [6.0, 7.0, 6.0])


def test_small_noise_takes_the_moments_of_each_start():
    sde = df.SDE(lorenz, lambda t, x: 2.0 * jnp.eye(3), 3)
    plan = df.plan(sde, STARTS, 0.25, preset="quick", hidden=3)
    assert (plan.method, plan.source) == ("galerkin", "moments")
    assert "nats from simulated paths" in plan.reasons["source"]


def test_a_source_near_the_density_is_the_answer_with_its_distance(few_paths):
    sde = df.SDE(lorenz, lambda t, x: 1.0 * jnp.eye(3), 3)
    density = df.learn(sde, STARTS, 0.1, key=0, preset="quick", certify=False)
    plan = density.provenance.plan
    assert (plan.method, plan.source, plan.parameters) == ("source", "cumulants", 0)
    assert "of simulated paths (total variation, standard error" in plan.reasons["method"]
    assert density.horizon == 0.1
    assert density.status is df.Status.FINISHED
    x0 = jnp.array([1.0, 2.0, 20.0])
    samples = density.sample(jr.key(0), 0.1, x0, (4096,))
    # The certificate needs no simulated paths: the residual is that of the source.
    bound = density.certificate(jr.key(1), 0.1, x0, samples=32)
    assert 0 < bound.bound < 0.03
    # Means agree with a simulation within six standard errors.
    starts = jnp.tile(x0, (4096, 1))
    [ends] = heun_paths(sde, 0.0, jr.key(2), starts, jnp.array([0.1]), 512)
    spread = np.std(ends, axis=0) * np.sqrt(2 / 4096)
    np.testing.assert_array_less(np.abs(np.mean(samples - ends, axis=0)), 6 * spread)


def test_a_source_near_the_density_over_part_of_the_horizon_is_composed(monkeypatch):
    """Up to t = 0.5 densities are bent; over an eighth of that they are not."""
    monkeypatch.setattr("diracflow.planning.near_source.MANY", 2048)  # half of the paths
    sde = df.SDE(lorenz, lambda t, x: 2.0 * jnp.eye(3), 3)
    density = df.learn(sde, STARTS, 0.5, key=0, preset="quick", certify=False)
    plan = density.provenance.plan
    assert (plan.method, plan.source, plan.legs) == ("source", "cumulants", 2)
    assert (density.horizon, density.reach) == (0.5, 0.25)
    assert "over each of 2 subintervals" in plan.reasons["method"]
    x0 = jnp.array([1.7, -12.2, 17.3])
    found = df.evaluate.measured_distance(density, 0.5, x0, sde=sde, paths=2**13)
    assert found.value < 0.03 + 3 * found.stderr
    assert found.stderr < 0.02


@pytest.mark.slow
def test_a_training_that_stops_early_returns_a_usable_source():
    """The settings allow a single step, which is far from the horizon."""
    sde = df.SDE(lorenz, lambda t, x: 2.0 * jnp.eye(3), 3)
    with pytest.warns(UserWarning, match="The density returned is a source without a flow"):
        density = df.learn(sde, STARTS, 0.25, key=0, tolerance=1e-2, max_steps=1, certify=False)
    assert density.horizon == 0.25
    assert density.provenance.plan.method == "source"


def test_the_source_alone_refuses_settings_of_a_training():
    model = df.models.ornstein_uhlenbeck(2)
    with pytest.raises(ValueError, match="trains nothing; leave out `layers`, `hidden`"):
        df.plan(model.sde, model.starts, 1.0, method="source", layers=4, hidden=3)


def test_the_distance_of_a_shifted_normal_law_is_its_total_variation():
    """A shift by a small a changes the law by a / sqrt(2 pi) in total variation."""
    z = jr.normal(jr.key(0), (16, 8192, 2)) + 0.1 * jnp.array([[[1.0, 0.0]]])
    found = distance_from_normal(z)
    assert abs(found.value - 0.1 / np.sqrt(2 * np.pi)) < 3 * found.stderr
    exact = distance_from_normal(jr.normal(jr.key(1), (16, 8192, 2)))
    assert exact.value < 3 * exact.stderr
    assert distance_from_normal(z.at[0, 0, 0].set(jnp.nan)).value == np.inf


def test_paths_that_explode_are_refused_before_any_training():
    sde = df.SDE(lambda t, x: x**3, 1.0 * jnp.ones(2), 2)
    with pytest.raises(ValueError, match="diverge before t=2, so there is no density to learn"):
        df.learn(sde, df.Normal([0.0, 0.0], [2.0, 2.0]), 2.0, key=0, preset="quick")
