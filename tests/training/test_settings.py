import numpy as np
import pytest

from diracflow.training.settings import PRESETS, Settings, settings_for

BAD_SETTINGS = {
    "odd layers": ({"layers": 5}, "`layers` must be even.*5"),
    "no layers": ({"layers": 0}, "`layers`.*at least 2"),
    "float layers": ({"layers": 4.0}, "whole number"),
    "beta one": ({"beta": 1.0}, "`beta`.*between 0 and 1.*1.0"),
    "beta zero": ({"beta": 0.0}, "`beta`"),
    "beta nan": ({"beta": float("nan")}, "`beta`"),
    "one sample": ({"samples": 1}, "`samples`"),
    "tolerance": ({"tolerance": 0.0}, "`tolerance`"),
    "regularisation": ({"regularisation": -1e-8}, "`regularisation`"),
    "first time": ({"first_time": 1.0}, "`first_time`"),
    "masks": ({"masks": "random"}, "fixed, permuted.*'random'"),
    "sampling": ({"sampling": "halton"}, "sobol, montecarlo"),
    "seconds": ({"max_seconds": 0}, "`max_seconds`"),
    "seconds in words": ({"max_seconds": "abc"}, "`max_seconds`"),
    "unknown": ({"tolerence": 1e-3}, "Unknown setting 'tolerence'.*tolerance"),
}


@pytest.mark.parametrize("changes, message", BAD_SETTINGS.values(), ids=BAD_SETTINGS)
def test_bad_settings_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        settings_for("quick", **changes)


def test_unknown_preset_lists_the_known():
    with pytest.raises(ValueError, match="quick, accurate, paper.*'fast'"):
        settings_for("fast")


def test_paper_preset_is_the_papers():
    paper = PRESETS["paper"]
    assert (paper.layers, paper.hidden) == (10, 4)
    assert paper.masks == "fixed"


def test_numpy_numbers_become_plain_ones():
    settings = settings_for("quick", samples=np.int64(64), tolerance=np.float32(0.5))
    assert type(settings.samples) is int
    assert type(settings.tolerance) is float


def test_changes_replace_fields_of_the_preset():
    assert settings_for("quick", layers=8) == Settings(**{**PRESETS["quick"].__dict__, "layers": 8})
