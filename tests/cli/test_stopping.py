"""Messages and exit codes for checkpoints and signals."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

import diracflow as df
from diracflow.cli.app import main
from diracflow.models.catalogue import named_object
from diracflow.training.checkpointer import TrainingTerminated

OWN = """
import jax.numpy as jnp
import diracflow as df
sde = df.SDE(lambda t, x: x - x**3, lambda t, x: 0.7 * jnp.eye(1), 1)
"""
LEARN = ["learn", "own.py:sde", "--starts", '{"law": "Normal", "mean": 0, "std": 1}']
LEARN += ["--horizon", "0.5", "--preset", "quick", "--checkpoint", "run"]


@pytest.fixture
def called(tmp_path, monkeypatch, capsys):
    """Run the command line in this process; return exit code and standard error."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["diracflow", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        return caught.value.code, capsys.readouterr().err

    return call


@pytest.mark.parametrize("command", [LEARN, ["run", "benes", "--checkpoint", "run"]], ids=str)
def test_resuming_needs_something_to_resume(command, called, tmp_path):
    code, said = called(*command, "--resume")
    assert code == 2
    assert "no training to resume in run. Leave out `--resume`" in said
    code, said = called(*command[:-2], "--resume")
    assert code == 2
    assert "`--resume` needs `--checkpoint DIR`" in said
    assert [path.name for path in tmp_path.iterdir()] == ["own.py"]


@pytest.mark.parametrize(
    "stop, code, what",
    [(KeyboardInterrupt, 130, "Interrupted"), (TrainingTerminated, 143, "Terminated")],
)
@pytest.mark.parametrize("saved", [False, True])
def test_signals_end_in_one_line_and_a_code(stop, code, what, saved, called, tmp_path, monkeypatch):
    def learn(*arguments, checkpoint, **options):
        checkpoint.mkdir()
        if saved:
            (checkpoint / "checkpoint-000004.safetensors").write_text("")
        raise stop

    monkeypatch.setattr("diracflow.cli.learn_command.learn", learn)
    found, said = called(*LEARN)
    assert found == code
    assert said.count("\n") == 1
    outcome = "saved in run; to resume it" if saved else "before the first checkpoint"
    assert re.search(rf"{what}.*{outcome}.*: diracflow learn own.py:sde", said)


def test_settings_cannot_name_the_directory(called):
    code, said = called(*LEARN, "--set", "checkpoint=other")
    assert code == 2
    assert "Unknown setting 'checkpoint'" in said


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_stopped_command_is_resumed_to_the_same_file(number, tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    command = [sys.executable, "-m", "diracflow.cli", *LEARN, "--set", "hidden=3"]
    child = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    while child.poll() is None and not list(tmp_path.glob("run/checkpoint-*.safetensors")):
        time.sleep(0.05)
    os.kill(child.pid, number)
    said = child.communicate()[1]
    assert child.returncode == 128 + number, said
    assert said.splitlines()[-1].startswith("diracflow: ")
    assert "Traceback" not in said
    again = subprocess.run([*command, "--resume"], cwd=tmp_path, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert "resumed at t=" in again.stderr
    whole = [part for part in command if part not in ("--checkpoint", "run")]
    subprocess.run([*whole, "-o", "whole.dflow"], cwd=tmp_path, check=True)
    sde = named_object(str(tmp_path / "own.py") + ":sde")
    resumed, plain = (df.load(tmp_path / n, sde=sde) for n in ("model.dflow", "whole.dflow"))
    assert resumed.trajectory.thetas.tobytes() == plain.trajectory.thetas.tobytes()
    assert resumed.provenance.certificate == plain.provenance.certificate
