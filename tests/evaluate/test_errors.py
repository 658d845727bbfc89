import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from diracflow.evaluate.errors import _by_quadrature, _by_sampling, _Pair, bootstrap_mean

NARROW = df.models.ornstein_uhlenbeck(2, rate=0.0, noise=1.0).exact
WIDE = df.models.ornstein_uhlenbeck(2, rate=0.0, noise=1.2).exact
X0 = np.zeros((1, 2))


def closed_forms(a=1.0, b=1.44):
    """Return the distances between N(0, bI) and the exact N(0, aI) in two dimensions."""
    # Products of Gaussians integrate to 1 / (2 pi (sum of variances)).
    squared = (1 / (2 * b) - 2 / (a + b) + 1 / (2 * a)) * 2 * a
    kl = a / b - 1 + np.log(b / a)
    # The densities cross at r^2 = 2 log(b/a) / (1/a - 1/b); masses inside are 1 - exp(-r^2/2v).
    r2 = 2 * np.log(b / a) / (1 / a - 1 / b)
    return squared, kl, np.exp(-r2 / (2 * b)) - np.exp(-r2 / (2 * a))


def test_quadrature_against_closed_forms():
    found = df.errors(WIDE, NARROW, [1.0], X0)
    squared, kl, tv = closed_forms()
    # For smooth integrands the sum is exact up to rounding and the tails beyond seven widths.
    np.testing.assert_allclose(found.squared_l2, [[squared]], rtol=1e-8)
    np.testing.assert_allclose(found.kl, [[kl]], rtol=1e-6)
    # |p - rho| has a kink on a circle: second order in a spacing of a sixth of the width.
    np.testing.assert_allclose(found.total_variation, [[tv]], rtol=5e-3)


def test_sampling_agrees_within_its_standard_error(getkey):
    found = _by_sampling(_Pair(WIDE, NARROW, X0, {}), 1.0, getkey(), 50_000)
    for value, stderr, expected in zip(found[:3], found[3:], closed_forms(), strict=True):
        assert abs(value[0] - expected) < 5 * stderr[0]
        assert 0 < stderr[0] < 0.1 * expected


def test_a_density_is_at_no_distance_from_itself(getkey):
    for method, size in ((_by_quadrature, 65), (_by_sampling, 100)):
        found = method(_Pair(NARROW, NARROW, X0, {}), 0.3, getkey(), size)
        np.testing.assert_allclose(found.squared_l2, 0, atol=1e-25)
        np.testing.assert_allclose(found.total_variation, 0, atol=1e-12)


def test_mass_elsewhere_is_seen():
    # A density shifted by many widths does not overlap with the exact one.
    shifted = df.models.ornstein_uhlenbeck(2, rate=1.0, level=20.0).exact
    found = df.errors(shifted, NARROW, [1.0], X0, grid=257)
    np.testing.assert_allclose(found.total_variation, 1.0, atol=1e-6)


def test_source_baseline_of_benes_is_the_known_one():
    # Recorded in independent computations: 2.8e-3 at t = 0.1, 7e-2 at 0.5, 0.27 at 1, 1.42 at 3.
    model = df.models.benes()
    x0 = model.starts.sample(jr.key(0), (256,))
    source = df.SourceDensity(df.EulerSource(model.sde))
    found = df.errors(source, model.exact, [0.1, 0.5, 1.0, 3.0], x0, grid=65)
    # The mean over 256 starts has a relative standard error of about a twentieth.
    np.testing.assert_allclose(found.squared_l2.mean(axis=1), [2.8e-3, 7e-2, 0.27, 1.42], rtol=0.15)


def test_bootstrap_covers_the_mean_and_narrows():
    rng = np.random.default_rng(0)
    for n in (50, 5000):
        values = rng.exponential(size=(2, n))
        mean, low, high = bootstrap_mean(values)
        np.testing.assert_allclose(mean, values.mean(axis=1))
        # Half-width 1.96 / sqrt(n) for a standard deviation of one, within sampling of it.
        np.testing.assert_allclose((high - low) / 2, 1.96 / np.sqrt(n), rtol=0.4)


@pytest.mark.parametrize("level, rate", [(0.0, 50.0), (200.0, 1.0)])
def test_grids_that_cannot_resolve_are_not_trusted(level, rate):
    # If the source is wide or far away, the exact density lies between the points of the grid.
    model = df.models.ornstein_uhlenbeck(2, rate=rate, level=level)
    source = df.SourceDensity(df.EulerSource(model.sde))
    found = df.errors(source, model.exact, [1.0], np.full((1, 2), 1.0), samples=8192)
    assert found.squared_l2_stderr > 0, "by sampling"
    # No sample of one density lies where the other has mass.
    np.testing.assert_allclose(found.total_variation, 1.0, atol=1e-6)


@pytest.mark.parametrize("dim", [1, 4])
def test_other_dimensions(dim, getkey):
    model = df.models.ornstein_uhlenbeck(dim)
    source = df.SourceDensity(df.EulerSource(model.sde))
    found = df.errors(source, model.exact, [0.01, 0.02], np.zeros((3, dim)), key=getkey())
    assert found.squared_l2.shape == (2, 3)
    # The error of the log-density of an Euler step is of order t, so its square is of order t^2.
    assert np.all((found.squared_l2 > 0) & (found.squared_l2 < dim * 0.02**2))
