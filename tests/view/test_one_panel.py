"""One-line pictures: one panel, in the Axes that are given."""

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pytest
import xarray as xr
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
    "forecast": lambda: df.forecast(0, OU, 0.2, [0.5, 1.5]),
    "check": lambda: df.evaluate.PredictiveCheck(
        np.arange(40.0), np.linspace(0.01, 0.99, 80).reshape(40, 2), np.zeros(40)
    ),
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
    with pytest.raises(ValueError, match=r"`ax` must come from `plt.subplots\(\)"):
        OU.at(0.5, [0.2]).plot(ax=3)
    pyplot.close("all")


@pytest.mark.parametrize("names", [["rate"], ["rate", "level"], ["rate", "level", "noise"]])
def test_posteriors_of_one_and_more_parameters(names):
    """`infer` returns a tree of xarray, which has no methods of ours."""
    rng = np.random.default_rng(0)
    groups = {n: (("chain", "draw"), rng.normal(size=(2, 50))) for n in names}
    tree = xr.DataTree.from_dict({"/posterior": xr.Dataset(groups)})
    axes = pyplot.subplots()[1]
    assert df.view.one_panel(tree, axes) is axes
    assert axes.has_data()
    shown = {axes.get_xlabel(), axes.get_ylabel(), *(t.get_text() for t in axes.get_xticklabels())}
    assert set(names) <= shown
    pyplot.close("all")


def test_the_history_of_a_training(trained):
    axes = pyplot.subplots()[1]
    assert trained.plot_history(ax=axes) is axes
    held_out = axes.lines[1].get_ydata()
    records = trained.provenance.history[1:]
    assert np.nanmax(held_out) == max(record.fresh_residual for record in records)
    assert trained.plot_history() is not axes
    pyplot.close("all")
    with pytest.raises(ValueError, match="`density` must come from"):
        df.view.history_panel(3)
