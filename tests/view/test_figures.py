import dataclasses

import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from diracflow.evaluate.errors import study


@pytest.fixture(scope="module")
def judged(trained, benes):
    return study(trained, benes.exact, key=jr.key(0), starts=4, times=np.array([0.1, 0.3]))


def test_study_summarises_by_time(judged):
    rows = judged.summary()
    assert [row["t"] for row in rows] == [0.1, 0.3]
    for row in rows:
        assert row["squared_l2_low"] <= row["squared_l2"] <= row["squared_l2_high"]
        assert row["squared_l2"] < row["source_squared_l2"]


def test_joint_shows_the_density(trained, benes):
    figure = df.view.joint(trained, benes.exact, 0.3, np.zeros((1, 2)))
    exact, learned, error = (axis.images[0] for axis in figure.axes[:3])
    box = exact.get_extent()
    x = np.linspace(box[0], box[1], 161)
    y = np.linspace(box[2], box[3], 161)
    point = np.array([x[100], y[40]])
    # Pixel (row, column) is (y, x).
    np.testing.assert_allclose(
        exact.get_array()[40, 100], benes.exact.prob(point, 0.3, np.zeros(2)), rtol=1e-6
    )
    np.testing.assert_allclose(
        error.get_array(), np.abs(learned.get_array() - exact.get_array()), atol=1e-12
    )


def certified(density, judged):
    """Return the density with an invented certificate and its errors."""
    rows = [
        {"t": t, "start": start, "bound": 0.1 * t, "stderr": 0.01 * t}
        for t in (0.1, 0.3)
        for start in ("centre", "edge")
    ]
    return density.with_provenance(certificate=tuple(rows), errors=tuple(judged.summary()))


FIGURES = {
    "error": lambda d, e, s: df.view.error_over_time(s),
    "training": lambda d, e, s: df.view.training_history(d),
    "conditional": lambda d, e, s: df.view.conditional(d, e, np.zeros(2), 0.3),
    "errors of a file": lambda d, e, s: df.view.error_over_time(s.summary()),
    "certificate": lambda d, e, s: df.view.certificate_over_time(certified(d, s)),
    "spread": lambda d, e, s: df.view.spread(e, np.zeros(2), until=0.3),
    "moulding": lambda d, e, s: df.view.moulding(d, 0.3, np.zeros(2), np.ones((4, 2))),
    "section": lambda d, e, s: df.view.section(
        df.models.sheared(4).exact, df.models.sheared(4).exact, 0.3, np.zeros(4)
    ),
}


@pytest.mark.parametrize("make", FIGURES.values(), ids=FIGURES)
def test_figures_are_drawn_and_labelled(make, trained, benes, judged, tmp_path):
    figure = make(trained, benes.exact, judged)
    figure.savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 5000
    assert any(axis.get_title() or axis.get_title(loc="left") for axis in figure.axes)
    whole = figure.get_supxlabel(), figure.get_supylabel()
    for axis in figure.axes:
        shown = axis.axison and axis.get_label() != "<colorbar>"
        assert not shown or axis.get_xlabel() or whole[0], "axes are labelled"


def test_spread_of_an_exact_density_needs_an_end(benes):
    with pytest.raises(ValueError, match="until"):
        df.view.spread(benes.exact, np.zeros(2))


def test_formats_follow_the_name_of_the_file(judged, tmp_path):
    figure = df.view.error_over_time(judged)
    for name, begins in (("a.pdf", b"%PDF"), ("a.svg", b"<?xml"), ("a.png", b"\x89PNG")):
        figure.savefig(tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(begins)


def test_a_thin_density_fills_its_picture():
    """Shortly after the start, position and velocity of an oscillator lie almost on a line."""
    model = df.models.linear_langevin()
    figure = df.view.planes(model.exact, [0.01], np.zeros(2))
    image = figure.axes[0].images[0]
    shown = image.get_array() > 0.1 * image.get_array().max()
    # In a box of about seven standard deviations a Gaussian exceeds a tenth of its maximum in a
    # tenth of the area.
    assert shown.mean() > 0.05


def test_a_history_of_zeros_is_said_so(trained):
    from helpers import RECORD

    zero = dataclasses.replace(RECORD, residual=0.0, fresh_residual=0.0)
    figure = df.view.training_history(trained.with_provenance(history=(zero, zero, zero)))
    words = [[text.get_text() for text in axis.texts] for axis in figure.axes]
    assert words == [["zero throughout"], [], [], [], [], []]


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_propagated_laws_are_drawn_in_any_dimension(dim):
    model = df.models.ornstein_uhlenbeck(dim)
    law = df.propagate(model.exact, df.Normal(0.0, 0.5), 0.4, draws=64)
    axis = df.view.propagated(law, jr.key(0), points=11).axes[0]
    assert "0.4" in axis.get_title(loc="left")
    assert axis.lines or axis.collections
