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
    # The exact marginal is that of a Gaussian, whose middle is its mean.
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
    """Else heat maps would show a strip of states that there are none of."""
    law = df.models.geometric_brownian().exact
    from diracflow.view.axes import _inside

    box = _inside(law, np.array([[-1.0, 2.0]]))
    assert box.tolist() == [[0.0, 2.0]]
