import pytest

from diracflow.cli.model_commands import write_report
from diracflow.models.catalogue import exact_of


@pytest.fixture(scope="module")
def file(trained, tmp_path_factory):
    """A model file that carries its certificate and errors, so that none are computed."""
    row = {"t": 0.3, "start": "centre", "x0": [0.0, 0.0], "bound": 0.01, "stderr": 0.001}
    names = ("squared_l2", "squared_l2_low", "squared_l2_high", "source_squared_l2")
    error = {"t": 0.3, **dict.fromkeys((*names, "kl", "total_variation"), 1e-4)}
    path = tmp_path_factory.mktemp("model") / "model.dflow"
    trained.with_provenance(certificate=(row,), errors=(error,)).save(path)
    return path


@pytest.mark.slow
def test_report_of_a_file(file, tmp_path):
    write_report(file, None, tmp_path / "page.html", 4, 0)
    text = (tmp_path / "page.html").read_text("utf-8")
    assert "the built-in model benes" in text
    assert "relative squared L2" in text


def test_the_exact_density_is_found_by_name(trained, benes):
    assert exact_of(trained.sde).log_prob([0.1, 0.2], 0.2, [0.0, 0.0]) == pytest.approx(
        float(benes.exact.log_prob([0.1, 0.2], 0.2, [0.0, 0.0])), rel=1e-12
    )


def test_mistakes_are_found_first(file, tmp_path):
    with pytest.raises(ValueError, match="no folder"):
        write_report(file, None, tmp_path / "nowhere" / "page.html", 4, 0)
    assert not list(tmp_path.iterdir())
