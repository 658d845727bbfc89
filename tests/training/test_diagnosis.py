"""Diagnoses from records; `test_learning` has trainings with these causes."""

import dataclasses

import pytest

from diracflow.training.state import Status, diagnosis, diverged
from helpers import RECORD

CAUSES = {
    Status.STIFF: {},
    Status.TOO_FEW_SAMPLES: {"fresh_residual": 0.8},
    Status.SOURCE_TOO_FAR: {"source_gap": 40.0},
    Status.FLOW_TOO_SMALL: {"fresh_residual": 0.2, "residual": 0.15},
}


@pytest.mark.parametrize("status", CAUSES)
def test_each_cause_is_recognised(status):
    bad = dataclasses.replace(RECORD, **CAUSES[status])
    assert diagnosis([RECORD] * 20 + [bad] * 10) is status


def test_severe_under_sampling_shows_before_the_residual_is_large():
    bad = dataclasses.replace(RECORD, fresh_residual=0.016, residual=3e-7)
    assert diagnosis([bad] * 10) is Status.TOO_FEW_SAMPLES
    assert diagnosis([dataclasses.replace(bad, residual=0.004)] * 10) is Status.STIFF


def test_one_bad_step_does_not_decide():
    bad = dataclasses.replace(RECORD, fresh_residual=0.9, bound=0.2)
    assert diagnosis([RECORD] * 9 + [bad]) is Status.STIFF
    assert not diverged([bad] * 9)
    assert diverged([RECORD] + [bad] * 10)
    assert not diverged([bad] * 9 + [RECORD])
    assert not diverged([dataclasses.replace(bad, bound=1e-3)] * 10)


def test_remedies_name_settings():
    for status in Status:
        assert status is Status.FINISHED or "`" in status.value
