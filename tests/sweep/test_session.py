"""Sweeps go on where they were, and outlive what happens to single runs.

Processes are real; what they do is not, except in the slow test: a training would compile.
"""

import functools
import json
import signal
import subprocess
import sys
import time

import pytest

from diracflow.sweep import LocalBackend, read_plan, rows_of, run_plan
from diracflow.sweep import launch as launching
from diracflow.sweep.launch import Stop

# Ends by the seed: 0 done, 1 killed, 2 failed, 3 waits until it is asked to end.
WORK = """
import json, os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
(folder / "calls").open("a").write("called ")
seed = json.loads((folder / "run.json").read_text())["seed"]
if seed == 1:
    os.kill(os.getpid(), signal.SIGKILL)
if seed == 3:
    time.sleep(600)
ends = {"horizon": 1.0, "asked_horizon": 1.0, "seconds": 2.0, "error": 1e-5, "message": ""}
ends |= {"status": "STIFF" if seed == 2 else "FINISHED", "failed": seed == 2}
(folder / "result.json").write_text(json.dumps(ends))
"""


@pytest.fixture
def plan(tmp_path, monkeypatch):
    script = tmp_path / "work.py"
    script.write_text(WORK)

    # Part of what is handed to backends: their processes do not see what a test replaces.
    program = functools.partial(launching.Launch, program=(sys.executable, str(script)))
    monkeypatch.setattr("diracflow.sweep.session.Launch", program)

    def read(seeds):
        (tmp_path / "study.toml").write_text(f'seed = {seeds}\n[[sde]]\nmodel = "brownian"')
        return read_plan(tmp_path / "study.toml")

    return read


def calls(plan):
    return [len((plan.folder(r).path / "calls").read_text().split()) for r in plan.runs]


def test_one_failure_does_not_end_the_others_and_is_retried_only_if_asked(plan):
    found = plan([0, 1, 2])
    told = []
    rows = run_plan(found, lambda: LocalBackend(2), report=lambda *args: told.append(args))
    assert [row["status"] for row in rows] == ["FINISHED", "KILLED", "STIFF"]
    assert "SIGKILL" in rows[1]["message"]
    assert [args[1:] for args in told] == [(1, 3), (2, 3), (3, 3)]
    assert json.loads((found.out / "table.json").read_text()) == rows
    assert len((found.out / "table.csv").read_text().splitlines()) == 4

    def none():
        raise AssertionError("nothing is to be run")

    assert run_plan(found, none) == rows
    run_plan(found, LocalBackend, retry=True)
    assert calls(found) == [1, 2, 2]
    more = plan([0, 1, 2, 4])
    run_plan(more, LocalBackend)
    assert calls(more) == [1, 2, 2, 1]


class Interrupting(LocalBackend):
    """Ctrl-C while a run is under way."""

    struck = False

    def pending(self, seconds):
        left = super().pending(seconds)
        if not self.struck and len(left) == 2:
            type(self).struck = True
            raise KeyboardInterrupt
        return left


def test_an_interruption_ends_all_processes_and_leaves_the_rest_to_be_run(plan):
    found = plan([0, 3, 4])
    with pytest.raises(KeyboardInterrupt):
        run_plan(found, Interrupting)
    assert [row["status"] for row in rows_of(found)] == ["FINISHED", "WAITING", "WAITING"]
    assert not (found.out / "stop").exists()
    assert len((found.out / "table.csv").read_text().splitlines()) == 4


def test_a_directory_has_one_sweep_at_a_time(plan):
    found = plan([0])

    class Second(LocalBackend):
        def submit(self, what):
            with pytest.raises(ValueError, match="A sweep is under way"):
                run_plan(found, LocalBackend)
            super().submit(what)

    assert run_plan(found, Second)[0]["status"] == "FINISHED"


def test_the_word_to_stop_keeps_runs_from_beginning(plan, tmp_path):
    found = plan([0])
    found.folder(found.runs[0]).prepare(found.runs[0])
    stop = Stop(tmp_path / "stop")
    stop.ask()
    launching.launch(launching.Launch(found.folder(found.runs[0]).path, found.base, stop.path))
    assert found.folder(found.runs[0]).result() is None


@pytest.mark.parametrize("package, backend", [("distributed", "dask"), ("ray", "ray")])
def test_a_missing_package_is_named(package, backend, monkeypatch, tmp_path):
    from diracflow.cli.sweep_command import sweep_plan

    monkeypatch.setitem(sys.modules, package, None)
    (tmp_path / "study.toml").write_text('[[sde]]\nmodel = "brownian"')
    with pytest.raises(ModuleNotFoundError, match=rf"pip install 'diracflow\[{backend}\]'"):
        sweep_plan(tmp_path / "study.toml", None, (backend, None, 1, None), retry=False, quiet=True)


@pytest.mark.parametrize("backend", ["dask", "ray"])
def test_clusters_give_the_same_table(backend, plan):
    from diracflow.sweep import DaskBackend, RayBackend

    pytest.importorskip({"dask": "distributed", "ray": "ray"}[backend])
    found = plan([0, 1, 2])
    rows = run_plan(found, {"dask": DaskBackend, "ray": RayBackend}[backend])
    assert [row["status"] for row in rows] == ["FINISHED", "KILLED", "STIFF"]
    assert rows == run_plan(found, LocalBackend)  # nothing is left to run


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_sweep_that_is_stopped_goes_on_to_the_same_bits(tmp_path):
    settings = "{layers = 2, hidden = 2, bumps = 2, samples = 64, tolerance = 2e-2}"
    (tmp_path / "study.toml").write_text(
        f'preset = "quick"\ncertify = false\nhorizon = 0.5\nsettings = {settings}\n'
        '[[sde]]\nmodel = "double_well"\n'
    )
    command = [sys.executable, "-m", "diracflow.cli", "sweep", "study.toml", "--out"]
    child = subprocess.Popen([*command, "first"], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    while child.poll() is None and not list(tmp_path.glob("first/runs/*/checkpoint/*.safetensors")):
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    said = child.communicate()[1]
    assert child.returncode == 130, said
    assert "to go on: diracflow sweep study.toml" in said
    for out in ("first", "second"):
        subprocess.run([*command, out], cwd=tmp_path, check=True)
    first, second = (
        next(tmp_path.glob(f"{out}/runs/*/model.dflow")) for out in ("first", "second")
    )
    import diracflow as df

    paths = [df.load(file).trajectory.thetas.tobytes() for file in (first, second)]
    assert paths[0] == paths[1]
    assert "resumed at t=" in (first.parent / "log.txt").read_text()
