"""Training in several processes: invalid addresses, signals, and a run of two processes."""

import os
import pathlib
import signal
import socket
import subprocess
import sys

import jax
import numpy as np
import pytest

from diracflow.training.multiprocess import ProcessGroup, ProcessLost, detect_lost_processes, join
from kept_run import learned

SCRIPT = pathlib.Path(__file__).with_name("process_member.py")


@pytest.mark.parametrize(
    "coordinator, processes, process_id, match",
    [
        ("here:1234", None, None, "all three"),
        (None, 2, 0, "all three"),
        ("here:1234", 2, None, "all three"),
        ("here", 2, 0, "HOST:PORT"),
        (":1234", 2, 0, "HOST:PORT"),
        ("here:", 2, 0, "HOST:PORT"),
        ("here:port", 2, 0, "HOST:PORT"),
        ("here:70000", 2, 0, "HOST:PORT"),
        ("here:1234", 0, 0, "`--processes` must be at least 1; got 0"),
        ("here:1234", 2, 2, "between 0 and 1.*got 2"),
        ("here:1234", 2, -1, "between 0 and 1.*got -1"),
    ],
)
def test_joining_needs_a_complete_address(coordinator, processes, process_id, match):
    with pytest.raises(ValueError, match=match):
        join(coordinator, processes, process_id)


def test_an_address_and_a_launcher_exclude_each_other():
    with pytest.raises(ValueError, match="leave out `--coordinator`"):
        join("here:1234", 2, 0, automatic=True)


def test_a_process_alone_decides_alone():
    group = ProcessGroup()
    assert group.first
    assert group.agree(1.0, 2.0) == (1.0, 2.0)
    assert group.broadcast(lambda: b"found") == b"found"
    group.raise_signals()


def test_a_failing_collective_raises_process_lost():
    said = "UNKNOWN: Gloo all-reduce: Connection reset by peer"
    match = f"has ended.*{said}.*same command"
    with pytest.raises(ProcessLost, match=match), detect_lost_processes():
        raise jax.errors.JaxRuntimeError(said)
    with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE"), detect_lost_processes():
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")


def started(folder, *extra, processes=2):
    """Start the processes of one training; each writes its path to a folder."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(SCRIPT), str(port), str(processes), str(folder), *extra]
    return [
        subprocess.Popen([*command, str(i)], stderr=subprocess.PIPE, text=True)
        for i in range(processes)
    ]


@pytest.mark.timeout(600)
def test_two_processes_learn_what_one_does(tmp_path):
    members = started(tmp_path, "whole")
    said = [member.communicate()[1] for member in members]
    assert [member.returncode for member in members] == [0, 0], said
    paths = [np.load(tmp_path / f"path-{i}.npy") for i in range(2)]
    assert paths[0].tobytes() == paths[1].tobytes()
    with pytest.warns(UserWarning, match="max_steps"):
        alone = learned(max_steps=3).trajectory.thetas
    # Sums are in another order, over three steps with condition numbers of at most 1e6.
    np.testing.assert_allclose(paths[0], alone, rtol=0, atol=1e-8 * np.max(np.abs(alone)))
    # Only the first process writes checkpoints.
    assert [path.suffix for path in (tmp_path / "run").glob("checkpoint-*")] != []


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_to_one_ends_all_after_a_step(number, tmp_path):
    members = started(tmp_path, "signal")
    # Wait until the second process has made a step.
    while (line := members[1].stderr.readline()) and "step" not in line:
        pass
    os.kill(members[1].pid, number)
    for member in members:
        member.communicate()
    codes = [member.returncode for member in members]
    assert codes == ([143, 143] if number == signal.SIGTERM else [-2, -2])
    assert list((tmp_path / "run").glob("checkpoint-*.safetensors"))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_lost_process_ends_the_run_which_can_be_resumed(tmp_path):
    members = started(tmp_path, "signal")
    while (line := members[1].stderr.readline()) and "step" not in line:
        pass
    members[1].kill()
    said = [member.communicate()[1] for member in members]
    assert members[0].returncode not in (0, None)
    assert "has ended, or cannot be reached" in said[0] or "heartbeat" in said[0].lower(), said[0]
    assert list((tmp_path / "run").glob("checkpoint-*.safetensors"))
    members = started(tmp_path, "whole")
    said = [member.communicate()[1] for member in members]
    assert [member.returncode for member in members] == [0, 0], said
