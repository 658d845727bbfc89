"""The page on statuses and exit codes is complete."""

import pathlib
import re

import pytest

import diracflow as df
from diracflow.cli.terminal import Exit

PAGE = (pathlib.Path(__file__).parents[1] / "docs" / "statuses.md").read_text()
ROWS = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)] for line in PAGE.splitlines()]


@pytest.mark.parametrize("status", df.Status)
def test_every_status_has_a_cause_and_a_remedy(status):
    rows = [row for row in ROWS if f"`{status.name}`" in row]
    assert len(rows) == 1
    assert all(rows[0][2:4])


@pytest.mark.parametrize("code", Exit)
def test_every_exit_code_has_its_row(code):
    assert [row for row in ROWS if len(row) > 2 and row[1] == str(int(code)) and row[2]]


@pytest.mark.parametrize(
    "kind",
    [
        df.OutsideWarning,
        df.PrecisionWarning,
        df.BoundaryWarning,
        df.ModelFileError,
        df.TrainingFailed,
    ],
)
def test_every_class_of_warnings_and_errors_is_named(kind):
    assert f"| `{kind.__name__}`" in PAGE
