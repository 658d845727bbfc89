"""Causes are told apart by records; whole trainings that show them are in `test_learning`."""

import dataclasses

import pytest

from diracflow.training.diagnosis import diagnosis, lost
from diracflow.training.status import Status
from helpers import RECORD

CAUSES = {
    Status.STIFF: {},
    Status.TOO_FEW_SAMPLES: {"fresh_residual": 0.8},
    Status.SOURCE_TOO_FAR: {"source_gap": 40.0},
    Status.FLOW_TOO_SMALL: {"fresh_residual": 0.2, "residual": 0.15},
}


@pytest.mark.parametrize("status", CAUSES)
def test_each_cause_has_its_signs(status):
    bad = dataclasses.replace(RECORD, **CAUSES[status])
    assert diagnosis([RECORD] * 20 + [bad] * 10) is status


def test_far_too_few_points_show_before_much_is_left_over():
    bad = dataclasses.replace(RECORD, fresh_residual=0.016, residual=3e-7)
    assert diagnosis([bad] * 10) is Status.TOO_FEW_SAMPLES
    assert diagnosis([dataclasses.replace(bad, residual=0.004)] * 10) is Status.STIFF


def test_one_bad_step_does_not_decide():
    bad = dataclasses.replace(RECORD, fresh_residual=0.9, bound=0.2)
    assert diagnosis([RECORD] * 9 + [bad]) is Status.STIFF
    assert not lost([bad] * 9)
    assert lost([RECORD] + [bad] * 10)
    assert not lost([bad] * 9 + [RECORD])
    assert not lost([dataclasses.replace(bad, bound=1e-3)] * 10)


def test_remedies_name_settings():
    for status in Status:
        assert status is Status.FINISHED or "`" in status.value
