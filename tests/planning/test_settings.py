import numpy as np
import pytest

import diracflow as df
from diracflow.planning.settings import PRESETS, Settings, settings_for
from diracflow.planning.size_rules import samples_rule
from helpers import prepared_for, problem_for, problem_of, shaped_for

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
    "momentum": ({"momentum": 1.0}, "`momentum`"),
    "effective share": ({"effective_share": 1.5}, "`effective_share`"),
    "recall": ({"recall": -1.0}, "`recall`"),
    "allowance": ({"allowance": 0.0}, "`allowance`"),
    "bumps": ({"bumps": 0}, "`bumps`"),
    "flow": ({"flow": "spline"}, "monotone, affine.*'spline'"),
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
    assert (paper.flow, paper.masks) == ("affine", "fixed")


def test_numpy_numbers_become_plain_ones():
    settings = settings_for("quick", samples=np.int64(64), tolerance=np.float32(0.5))
    assert type(settings.samples) is int
    assert type(settings.tolerance) is float


def test_changes_replace_fields_of_the_preset():
    assert settings_for("quick", layers=8) == Settings(**{**PRESETS["quick"].__dict__, "layers": 8})


def test_sizes_follow_dimension_and_tolerance():
    def shaped(dim, **settings):
        return shaped_for(problem_of(df.models.brownian(dim)), "accurate", **settings)

    widths = [shaped(2, tolerance=t).hidden for t in (0.1, 1e-2, 1e-3)]
    assert widths == sorted(set(widths))
    shared = [shaped(d, networks="shared").layers for d in (1, 2, 4, 5, 8, 9)]
    assert shared == [4, 4, 4, 6, 6, 8]
    assert [shaped(d).layers for d in (3, 6, 8, 20)] == [4, 4, 2, 2]


def test_given_sizes_are_kept():
    given = {"layers": 2, "hidden": 5, "samples": 100}
    problem = problem_of(df.models.brownian(6))
    plan = prepared_for(problem, "accurate", source="euler", **given).plan
    assert (plan.layers, plan.hidden, plan.samples) == (2, 5, 100)


@pytest.mark.parametrize("parameters", [1, 100, 1024, 1025])
def test_points_are_twice_as_many_as_parameters(parameters):
    samples = samples_rule(settings_for("accurate"), parameters).value
    assert 2 * parameters <= samples < 4 * parameters
    assert np.log2(samples) % 1 == 0


@pytest.mark.slow
def test_the_source_follows_from_the_drift():
    def taken(sde, source="auto"):
        return prepared_for(problem_for(sde, df.Normal(0.0, 1.0)), source=source).plan.source

    straight, bent = df.models.sheared(4).sde, df.models.benes().sde
    assert taken(straight) == "euler"
    assert taken(bent) == "closure"
    assert taken(straight, "closure") == "closure"
    assert taken(bent, "moments") == "moments"
