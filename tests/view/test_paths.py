import jax.numpy as jnp
import numpy as np
import pytest

import diracflow as df
from diracflow.hidden.filtering import Filtered
from diracflow.uses.bridges import Bridge

TIMES = jnp.array([0.0, 0.4, 1.0])


@pytest.fixture
def fan():
    """Return 101 paths through 0, 1, ..., 100; the upper half has no weight."""
    middle = jnp.arange(101.0)
    paths = jnp.stack([jnp.zeros(101), middle, jnp.zeros(101)], axis=1)[:, :, None]
    return Bridge(TIMES, paths, jnp.where(middle > 50, -jnp.inf, 0.0), outside=0.0)


@pytest.fixture
def bands():
    means = jnp.stack([TIMES, -TIMES], axis=1)
    levels = jnp.array([0.05, 0.5, 0.95])
    quantiles = means[:, None] + (levels - 0.5)[None, :, None]
    ones = jnp.ones(3)
    laws = TIMES, means, means**2, levels, quantiles, 0 * ones
    return Filtered(*laws, -ones, ones, particles=None, weights=None)


def corners(axis, number=0):
    """Return the ordinates of a shaded band at the middle time."""
    points = axis.collections[number].get_paths()[0].vertices
    return sorted({float(y) for t, y in points if t == pytest.approx(0.4)})


def test_bridge_bands_follow_the_weights(fan, tmp_path):
    figure = df.view.bridge_fan(fan)
    (axis,) = figure.axes
    # Quantiles of 0, ..., 50 with equal weights.
    assert corners(axis) == [2.0, 48.0]
    assert corners(axis, 1) == [12.0, 38.0]
    assert "effective sample size 50%" in axis.get_title(loc="left")
    figure.savefig(tmp_path / "fan.png")
    assert (tmp_path / "fan.png").stat().st_size > 5000


def test_filter_bands_show_quantiles_and_what_is_known(bands, tmp_path):
    figure = df.view.filter_bands(bands, np.array([0.1, np.nan, 0.9]), np.zeros((3, 2)))
    first, second = figure.axes
    assert corners(first) == pytest.approx([-0.05, 0.85])
    assert corners(second) == pytest.approx([-0.85, 0.05])
    labels = {text.get_text() for text in figure.legends[0].get_texts()}
    assert labels == {"5 to 95 %", "median", "mean", "hidden state", "observation"}
    assert len(second.lines) == 3, "median, mean and hidden state; the component is not observed"
    figure.savefig(tmp_path / "bands.png")
    assert (tmp_path / "bands.png").stat().st_size > 5000
