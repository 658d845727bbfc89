import jax.random as jr
import numpy as np
import pytest

import diracflow as df


def test_pairs_show_marginals_of_the_density(tmp_path):
    law = df.models.ornstein_uhlenbeck(3).exact
    figure = df.view.pairs(law, law, 0.5, np.array([1.0, 0.0, -1.0]))
    shown = [axis for axis in figure.axes if axis.get_visible()]
    assert len(shown) == 6
    assert [axis.get_xlabel() for axis in shown[-3:]] == ["$x_{1}$", "$x_{2}$", "$x_{3}$"]
    # The exact marginal is Gaussian, centred at its mean.
    mean = law.sample(jr.key(0), 0.5, [1.0, 0.0, -1.0], (4000,)).mean(axis=0)
    for axis, component in ((shown[0], 0), (shown[2], 1), (shown[5], 2)):
        x, heights = axis.lines[0].get_data()
        spread = np.ptp(x)
        assert np.sum(x * heights) / np.sum(heights) == pytest.approx(
            float(mean[component]), abs=0.02 * spread
        )
    figure.savefig(tmp_path / "pairs.pdf")


def test_one_component_has_no_pairs():
    law = df.models.ornstein_uhlenbeck(1).exact
    with pytest.raises(ValueError, match="two components or more"):
        df.view.pairs(law, None, 0.5, np.zeros(1))


def test_a_picture_of_an_exact_density_stays_in_its_domain():
    """Heat maps must not show states outside the domain."""
    law = df.models.geometric_brownian().exact
    from diracflow.view.axes import inside

    box = inside(law, np.array([[-1.0, 2.0]]))
    assert box.tolist() == [[0.0, 2.0]]


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
    # A true value is one line on the diagonal; on a pair each known value is one line.
    assert [len(axis.lines) for axis in shown] == [1, 3, 1, 2, 2, 0]
