import jax.random as jr
import numpy as np
import pytest

import diracflow as df


def test_pairs_show_every_parameter():
    xarray = pytest.importorskip("xarray")
    draws = np.random.default_rng(0).normal(size=(2, 50, 3))
    names = ("rate", "level", "noise")
    table = {name: (("chain", "draw"), draws[..., i]) for i, name in enumerate(names)}
    tree = xarray.DataTree.from_dict({"posterior": xarray.Dataset(table)})
    figure = df.view.posterior_pairs(tree, truth={"rate": 0.0, "level": 0.1})
    shown = [axis for axis in figure.axes if axis.get_visible()]
    assert len(shown) == 6
    assert [axis.get_xlabel() for axis in shown[-3:]] == list(names)
    # The truth crosses what it is known of: once on a diagonal, twice on a pair.
    assert [len(axis.lines) for axis in shown] == [1, 3, 1, 2, 2, 0]


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_propagated_laws_are_drawn_in_any_dimension(dim):
    model = df.models.ornstein_uhlenbeck(dim)
    law = df.propagate(model.exact, df.Normal(0.0, 0.5), 0.4, draws=64)
    axis = df.view.propagated(law, jr.key(0), points=11).axes[0]
    assert "0.4" in axis.get_title(loc="left")
    assert axis.lines or axis.collections
