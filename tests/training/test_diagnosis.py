"""Causes are told apart by records; whole trainings that show them are in `test_learning`."""

import dataclasses

import pytest

from diracflow.training.diagnosis import diagnosis, lost
from diracflow.training.history import Record
from diracflow.training.status import Status

GOOD = Record(
    time=0.25,
    length=0.1,
    error=1e-4,
    residual=1e-4,
    fresh_residual=2e-4,
    regularisation=1e-6,
    rank=120.3,
    condition=1e6,
    forcing=0.5,
    source_gap=0.3,
    bound=2e-3,
    rejected=0,
    seconds=10.0,
)

CAUSES = {
    Status.STIFF: {},
    Status.TOO_FEW_SAMPLES: {"fresh_residual": 0.8},
    Status.SOURCE_TOO_FAR: {"source_gap": 40.0},
    Status.FLOW_TOO_SMALL: {"fresh_residual": 0.2, "residual": 0.15},
}


@pytest.mark.parametrize("status", CAUSES)
def test_each_cause_has_its_signs(status):
    bad = dataclasses.replace(GOOD, **CAUSES[status])
    assert diagnosis([GOOD] * 20 + [bad] * 10) is status


def test_one_bad_step_does_not_decide():
    bad = dataclasses.replace(GOOD, fresh_residual=0.9, bound=0.2)
    assert diagnosis([GOOD] * 9 + [bad]) is Status.STIFF
    assert not lost([bad] * 9)
    assert lost([GOOD] + [bad] * 10)
    assert not lost([bad] * 9 + [GOOD])
    assert not lost([dataclasses.replace(bad, bound=1e-3)] * 10)


def test_remedies_name_settings():
    for status in Status:
        assert status is Status.FINISHED or "`" in status.value
