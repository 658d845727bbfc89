"""Parameters stay constant if, and only if, the source is exact."""

import jax.random as jr
import numpy as np
import pytest

import diracflow as df

SMALL = {"preset": "quick", "layers": 2, "hidden": 2, "samples": 256, "certify": False}


@pytest.fixture(scope="module")
def model():
    return df.models.ornstein_uhlenbeck(3)


@pytest.mark.slow
def test_a_linear_equation_needs_no_training(model, getkey):
    density = df.learn(model.sde, model.starts, 1.5, key=jr.key(0), **SMALL)
    assert density.status is df.Status.FINISHED
    assert density.horizon == 1.5
    assert np.all(density.trajectory.thetas == density.trajectory.thetas[0])
    found = df.errors(density, model.exact, [1e-3, 0.3, 1.5], model.starts.sample(getkey(), (4,)))
    assert np.all(found.squared_l2 < 1e-20)


@pytest.mark.slow
def test_an_inexact_source_is_corrected(model):
    density = df.learn(model.sde, model.starts, 0.1, key=jr.key(0), source="euler", **SMALL)
    assert np.any(density.trajectory.thetas != density.trajectory.thetas[0])
    assert density.provenance.history[-1].rank > 0


@pytest.mark.slow
def test_a_source_that_becomes_inexact_is_corrected():
    def drift(t, x):
        # Linear up to t = 0.5, nonlinear afterwards.
        return -x + np.float64(20.0) * (t > 0.5) * (t - 0.5) * x**3 * 0.01

    sde = df.SDE(drift, lambda t, x: np.eye(1), dim=1)
    density = df.learn(sde, df.Normal(0.0, 1.0), 1.0, key=jr.key(0), **SMALL)
    assert density.provenance.history[-1].rank > 0
