import dataclasses

from diracflow.learning.run import display_for
from diracflow.training.progress import PlainProgress, progress_for
from diracflow.training.state import Status
from helpers import RECORD


def test_plain_lines_contain_the_diagnostics():
    lines = []
    progress = PlainProgress(1.0, lines.append)
    progress.update(RECORD)
    for part in (
        "t=0.25/1",
        "step 1 (2 rejected)",
        "residual 2.0e-04",
        "TV bound 0.002",
        "rank 120",
        "left",
    ):
        assert part in lines[0]


def test_plain_lines_are_few():
    lines = []
    progress = PlainProgress(1.0, lines.append)
    for k in range(100):
        progress.update(dataclasses.replace(RECORD, seconds=0.1 * k))
    progress.finish(Status.FINISHED)
    assert len(lines) == 2


def test_remaining_time_is_exact_for_even_steps_near_the_end():
    progress = PlainProgress(1.0, lambda line: None)
    for k in range(99):
        progress.update(
            dataclasses.replace(
                RECORD, seconds=0.1 * (k + 1), time=((k + 1) / 100) ** 2, length=0.01
            )
        )
    record = dataclasses.replace(RECORD, seconds=9.9, time=0.99**2, length=0.01)
    assert abs(progress._remaining(record) - 0.1) < 1e-3


def test_nothing_is_shown_by_default(capsys):
    with progress_for(1.0, shown=False) as progress:
        progress.update(RECORD)
        progress.finish(Status.FINISHED)
    assert capsys.readouterr().err == ""


def test_a_function_gets_the_record_of_every_step():
    records = []
    with display_for(records.append)(1.0) as progress:
        progress.update(RECORD)
        progress.update(RECORD)
    assert records == [RECORD, RECORD]
    assert progress.steps == 2
