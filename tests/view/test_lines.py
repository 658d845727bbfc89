import numpy as np
import pytest

import diracflow as df
from diracflow import view
from diracflow.cli.app import BUILT_IN
from diracflow.models.catalogue import MODELS

LINE, PLANE = df.models.cir().exact, df.models.brownian(2).exact
FIGURES = {
    "with the exact density": (lambda t: view.lines(LINE, LINE, t, np.array([0.3])), 2),
    "without": (lambda t: view.lines(LINE, None, t, np.array([0.3])), 1),
    "in the plane": (lambda t: view.planes(PLANE, t, np.zeros(2)), 0),
}


@pytest.mark.parametrize("make, curves", FIGURES.values(), ids=FIGURES)
def test_a_panel_for_each_time(make, curves, tmp_path):
    figure = make([0.1, 1.0])
    panels = [axis for axis in figure.axes if axis.get_title()]
    assert [axis.get_title().split("$")[-2] for axis in panels] == ["t=0.1", "t=1"]
    assert all(len(axis.lines) == curves for axis in panels)
    figure.savefig(tmp_path / "figure.png")


def test_help_names_every_built_in_model():
    assert set(BUILT_IN) == set(MODELS)
