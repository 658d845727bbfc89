"""Small real trainings with noise on the velocity only."""

import jax
import jax.random as jr
import numpy as np
import pytest

import diracflow as df

SMALL = {"preset": "quick", "layers": 2, "hidden": 3, "samples": 512}


@pytest.fixture(scope="module")
def oscillator():
    model = df.models.linear_langevin()
    return model, df.learn(model.sde, model.starts, 2.0, key=jr.key(0), **SMALL)


def test_a_linear_oscillator_is_exact_from_the_start_to_the_horizon(oscillator, getkey):
    model, density = oscillator
    x0 = model.starts.sample(getkey(), (8,))
    found = df.errors(density, model.exact, [1e-6, 1e-3, 0.1, 2.0], x0).squared_l2
    # The source is exact, and the forcing so small that parameters do not move. At t = 1e-6 the
    # position is 3e-10 wide given the velocity; four roundings of 2e-16 shift it by 3e-6 widths.
    assert np.all(found[0] < 1e-11)
    assert np.all(found[1:] < 1e-14)
    assert density.provenance.plan.source == "moments"
    assert "noise does not enter" in density.provenance.plan.reasons["source"]


@pytest.mark.slow
def test_its_certificate_is_as_small_as_rounding_from_the_start_on(oscillator, getkey):
    model, density = oscillator
    times, x0 = [1e-4, 0.1, 2.0], np.array([[0.5, -1.0]])
    found = density.certificate(getkey(), times, x0)
    # Rounding leaves a residual of 1e-15 / c^2 per unit of clock; the first node is near 0.001.
    assert np.all(found.bound < 1e-8)
    true = df.errors(density, model.exact, times, x0, key=getkey()).total_variation[:, 0]
    assert np.all(true <= found.bound)
    # A density evaluated with half as many digits is rounded more.
    with jax.enable_x64(False):
        coarse = density.certificate(getkey(), times, x0)
    assert np.all(coarse.bound > 8 * np.finfo(np.float32).eps)


def test_files_say_why(oscillator, tmp_path):
    _, density = oscillator
    density.save(tmp_path / "model.dflow")
    assert (
        df.load(tmp_path / "model.dflow").provenance.plan.reasons["source"]
        == density.provenance.plan.reasons["source"]
    )
