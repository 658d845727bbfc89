"""One-line pictures: one panel, in the Axes that are given."""

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pytest
from matplotlib import pyplot

import diracflow as df

OU = df.models.ornstein_uhlenbeck(1).exact
BENES = df.models.benes()


def observe(x, y):
    return -0.5 * (y - x[0]) ** 2 / 0.1


THINGS = {
    "one": lambda: OU.at(0.5, [0.2]),
    "two": lambda: BENES.exact.at(0.5, [0.2, 0.1]),
    "three": lambda: df.models.brownian(3).exact.at(0.5, np.zeros(3)),
    "propagated": lambda: df.propagate(OU, df.Normal(0.0, 1.0), 0.5, draws=64),
    "paths": lambda: df.simulate(0, BENES.exact, [0.5, 1.0], np.zeros(2), paths=20),
    "scalar paths": lambda: df.simulate(0, OU, [0.5, 1.0], 0.0, paths=20),
    "filter": lambda: df.filter(
        0, OU, [0.5, 1.5], [0.3, -0.2], observe, initial=df.Normal(0.0, 1.0), history=True
    ),
    "particles": lambda: THINGS["filter"]().at(0),
    "bridge": lambda: df.bridge(
        0, BENES.exact, [0.0, 0.0], [1.0, 0.5], 1.0, steps=8, paths=30, sde=BENES.sde
    ),
}


@pytest.mark.parametrize("name", THINGS)
def test_everything_is_drawn_in_the_axes_given(name):
    thing = THINGS[name]()
    figure, axes = pyplot.subplots()
    assert thing.plot(ax=axes) is axes
    assert axes.lines or axes.collections or axes.patches
    assert axes.get_xlabel()
    figure.canvas.draw()
    pyplot.close(figure)


def test_a_new_figure_is_made_without_axes():
    axes = OU.plot(0.5, [0.2])
    assert len(axes.lines) == 1
    # The curve is the density.
    x, y = axes.lines[0].get_data()
    np.testing.assert_allclose(y, OU.prob(np.asarray(x)[:, None], 0.5, [0.2]), rtol=1e-12)
    pyplot.close(axes.figure)


def test_batches_and_strangers_are_refused():
    with pytest.raises(ValueError, match="one time and one start"):
        OU.at([0.5, 1.0], [0.2]).plot()
    with pytest.raises(ValueError, match="got int"):
        df.view.one_panel(3)
    pyplot.close("all")
