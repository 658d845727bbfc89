"""Simulated paths measure how far a source is from the density."""

import jax.numpy as jnp
import numpy as np

import diracflow as df
from diracflow.planning.pilot import misfit, pilot
from diracflow.sde.problem import checked_problem


def lorenz(t, x):
    return jnp.stack([10 * (x[1] - x[0]), x[0] * (28 - x[2]) - x[1], x[0] * x[1] - 8 / 3 * x[2]])


def test_an_exact_source_fits_within_sampling_error():
    model = df.models.ornstein_uhlenbeck(2)
    problem = checked_problem(model.sde, model.starts, 1.0)
    paths = pilot(problem)
    # 32 estimates of five moments from 64 paths each: about 0.04 nats each, 0.01 for their mean.
    assert misfit(df.MomentSource(model.sde), paths) < 0.04


def test_a_wrong_width_is_measured_in_nats():
    model = df.models.brownian(2)
    paths = pilot(checked_problem(model.sde, model.starts, 1.0))
    wide = df.SDE(lambda t, x: jnp.zeros(2), lambda t, x: 3.0 * jnp.eye(2), 2)
    # KL from N(0, 1) to N(0, 9) in two dimensions.
    expected = np.log(9) + (1 / 9 - 1)
    np.testing.assert_allclose(misfit(df.EulerSource(wide), paths), expected, atol=0.05)


def test_small_noise_takes_the_moments_of_each_start():
    sde = df.SDE(lorenz, lambda t, x: 2.0 * jnp.eye(3), 3)
    plan = df.plan(sde, df.Normal([0.0, 0.0, 23.0], [6.0, 7.0, 6.0]), 0.25, preset="quick")
    assert plan.source == "moments"
    assert "nats from simulated paths" in plan.reasons["source"]
