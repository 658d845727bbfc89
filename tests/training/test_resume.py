"""Trainings that are cut short, and end as if they had not been."""

import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import threading

import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from diracflow.training.explicit_loop import SwitchingLoop
from diracflow.training.progress import Progress
from kept_run import learned, switch_early

KILLED = pathlib.Path(__file__).parents[1] / "kept_run.py"


class Stop(Exception):
    """What a progress display of the user's raises."""


def stopping(step):
    """A progress display that fails after a step."""

    class Stopping(Progress):
        def _show(self, record):
            if self.steps == step:
                fail()

    return Stopping


def fail():
    raise Stop


def interrupted(folder, step):
    with pytest.raises(Stop) as caught:
        learned(checkpoint=folder, progress=stopping(step))
    return caught.value


def files(folder):
    return sorted(path.name for path in folder.iterdir() if path.suffix == ".safetensors")


def assert_same(found, expected):
    """Equal to the last bit, but for wall time."""
    for name in ("clocks", "thetas", "first", "last"):
        mine, other = (getattr(d.trajectory, name) for d in (found, expected))
        np.testing.assert_array_equal(mine, other, err_msg=name)
    for mine, other in zip(found.provenance.history, expected.provenance.history, strict=True):
        assert dataclasses.replace(mine, seconds=0) == dataclasses.replace(other, seconds=0)
    assert found.status is expected.status
    assert found.provenance.plan == expected.provenance.plan


@pytest.fixture(scope="module")
def early_switch():
    """Steps are implicit from the fifth on."""
    with pytest.MonkeyPatch.context() as patch:
        switch_early(patch.setattr)
        yield


@pytest.fixture(scope="module")
def whole(early_switch):
    density = learned()
    assert len(density.provenance.history) >= 7
    return density


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(1, marks=pytest.mark.slow, id="first"),
        pytest.param(3, id="explicit"),
        pytest.param(6, id="implicit"),
    ],
)
def test_a_resumed_run_ends_in_the_same_bits(step, whole, tmp_path):
    reason = interrupted(tmp_path / "run", step)
    assert f"{step} steps, up to t=" in reason.__notes__[-1]
    assert_same(learned(checkpoint=tmp_path / "run"), whole)


@pytest.mark.slow
def test_a_run_can_be_resumed_again_and_again(whole, tmp_path):
    for step in (2, 3, 5):
        interrupted(tmp_path, step)
    assert len(files(tmp_path)) == 2
    assert files(tmp_path)[-1] == "checkpoint-000005.safetensors"
    assert_same(learned(checkpoint=tmp_path), whole)


@pytest.mark.slow
def test_a_run_is_resumed_in_the_papers_coordinates(tmp_path):
    # There steps are explicit throughout, and start behind zero.
    raw = {"preset": "paper", "layers": 2, "samples": 128, "tolerance": 1e-2, "certify": False}
    model = df.models.sheared(2)
    call = (model.sde, model.starts, 0.05)
    with pytest.raises(Stop):
        df.learn(*call, key=jr.key(0), progress=stopping(2), checkpoint=tmp_path, **raw)
    resumed = df.learn(*call, key=jr.key(0), checkpoint=tmp_path, **raw)
    assert_same(resumed, df.learn(*call, key=jr.key(0), **raw))


main_thread = pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals need the main thread"
)


@pytest.mark.slow
@main_thread
def test_a_signal_within_a_step_keeps_the_one_before(whole, tmp_path, monkeypatch):
    # An attempt has changed the length and the regularisation by then.
    step, calls = SwitchingLoop._attempt, []

    def struck(self, *arguments):
        self.length, self.regularisation.value = 1e-7, 1.0
        calls.append(1)
        os.kill(os.getpid(), signal.SIGTERM)
        return step(self, *arguments)

    monkeypatch.setattr(SwitchingLoop, "_attempt", struck)
    with pytest.raises(df.TrainingTerminated):
        learned(checkpoint=tmp_path)
    assert calls
    monkeypatch.setattr(SwitchingLoop, "_attempt", step)
    assert_same(learned(checkpoint=tmp_path), whole)


def test_a_killed_process_is_resumed_by_another(whole, tmp_path):
    # In the middle of a write, after the file is on the disk and before it has its name.
    command = [sys.executable, str(KILLED), str(tmp_path), "3"]
    killed = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert [path for path in tmp_path.iterdir() if path.name.startswith(".checkpoint")]
    assert files(tmp_path) == ["checkpoint-000001.safetensors", "checkpoint-000002.safetensors"]
    assert_same(learned(checkpoint=tmp_path), whole)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".checkpoint")]


def test_limits_can_be_raised_and_a_finished_run_is_returned(whole, tmp_path, monkeypatch):
    with pytest.warns(UserWarning, match="max_steps"):
        part = learned(checkpoint=tmp_path, max_steps=3)
    assert part.status is df.Status.STEP_LIMIT
    tables = []

    def table(density, key):
        tables.append(({"t": density.horizon, "bound": 0.2, "stderr": 0.1},))
        return tables[-1]

    monkeypatch.setattr("diracflow.learning.interface.certificate_table", table)
    found = learned(checkpoint=tmp_path, certify=True)
    assert_same(found, whole)
    assert found.provenance.seconds > part.provenance.seconds
    # It takes neither a step nor another certificate.
    monkeypatch.setattr(SwitchingLoop, "advance", lambda loop: fail())
    again = learned(checkpoint=tmp_path, certify=True)
    assert_same(again, whole)
    assert len(tables) == 1
    assert again.provenance.certificate == found.provenance.certificate == tables[0]


def test_another_run_is_refused(tmp_path):
    with pytest.warns(UserWarning, match="max_steps"):
        learned(checkpoint=tmp_path, max_steps=1)
    with pytest.raises(df.CheckpointError, match=r"another run.*`key`, which was.*delete"):
        learned(checkpoint=tmp_path, key=jr.key(8))
