"""The estimate of the error is near the truth, and never far below it."""

import jax.random as jr
import numpy as np
import pytest

import diracflow as df

# The mean absolute error is at most its root mean square, and sqrt(2 / pi) of it for a normal law,
# which the estimate assumes. So the estimate may be too small by this factor, and not by more.
FLATTEST = np.sqrt(2 / np.pi)


@pytest.fixture(scope="module")
def line():
    """A small training on the line, and its model."""
    model = df.models.benes(dim=1)
    sizes = {"layers": 2, "hidden": 2, "samples": 256, "certify": False}
    return df.learn(0, model.sde, model.starts, 1.5, preset="quick", **sizes), model


@pytest.fixture(autouse=True)
def few_points(monkeypatch):
    """Half of the points: standard errors, which tests allow for, are larger by sqrt(2)."""
    monkeypatch.setattr("diracflow.certify.estimate._POINTS", 64)


def distances(density, model, t, starts):
    """Return true total variation distances, by quadrature."""
    x = np.linspace(-9.0, 9.0, 1801)[:, None]
    laws = [
        np.exp(np.stack([d.log_prob(x, t, x0) for x0 in starts])) for d in (density, model.exact)
    ]
    return 0.5 * np.sum(np.abs(laws[0] - laws[1]), axis=1) * (x[1, 0] - x[0, 0])


def test_estimates_are_near_the_truth_where_bounds_are_far_above(line):
    density, model = line
    starts = np.array([[-1.0], [0.7]])
    ratios, bounds = [], []
    for t in (0.1, 1.5):
        found = density.certificate(1, t, starts, samples=32, estimate=True)
        true = distances(density, model, t, starts)
        assert np.all(found.estimate.value > FLATTEST * true - 3 * found.estimate.stderr)
        ratios.extend(found.estimate.value / true)
        bounds.extend(found.bound / true)
    assert np.median(ratios) < 2.5
    assert np.median(bounds) > 2 * np.median(ratios)


def test_estimates_of_composed_densities_name_their_parts(line, monkeypatch):
    # The finer mixture is for the bound, which has a test of its own.
    monkeypatch.setattr("diracflow.density.composed_certificate._FINER", 256)
    density, model = line
    whole = df.ComposedDensity(density, 3.0, starts=model.starts)
    x0 = np.array([0.3])
    found = whole.certificate(1, [1.0, 3.0], x0, samples=32, estimate=True).estimate
    assert found.value.shape == (2,)
    np.testing.assert_allclose(sum(found.parts.values()), found.value, rtol=1e-12)
    assert found.dominant[0] == "first subinterval"
    assert found.parts["later subintervals"][0] == 0 < found.parts["later subintervals"][1]
    true = distances(whole, model, 3.0, x0[None])[0]
    # The parts add up at most; a density composed of two is not five times better than their sum.
    assert FLATTEST * true - 3 * found.stderr[1] < found.value[1] < 5 * true


def test_a_source_that_is_exact_has_no_error(few_paths):
    model = df.models.ornstein_uhlenbeck(2)
    density = df.learn(0, model.sde, model.starts, 1.0, preset="quick", certify=False)
    found = density.certificate(jr.key(1), 1.0, np.ones(2), samples=32, estimate=True)
    # Frames come from splines, whose errors are those of the bound.
    assert found.estimate.value < 1e-6


def test_the_flow_of_the_paper_has_the_bound_only():
    model = df.models.brownian(2)
    limits = {"layers": 2, "samples": 64, "max_steps": 1, "certify": False}
    with pytest.warns(UserWarning, match="`max_steps`"):
        density = df.learn(0, model.sde, model.starts, 0.1, preset="paper", **limits)
    with pytest.raises(ValueError, match="has the bound only"):
        density.certificate(1, density.horizon, np.zeros(2), estimate=True)
