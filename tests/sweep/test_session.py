"""Sweeps resume, and continue when single runs fail.

The processes are real, but except in the slow test they do not train: that would compile.
"""

import functools
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from diracflow.sweep import read_sweep, run_sweep, sweep_table
from diracflow.sweep.run_process import supervise

# The seed decides: 0 succeeds, 1 is killed, 2 fails, 3 and 5 sleep, and 5 ignores SIGTERM.
PROGRAM = """
import json, os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
seed = json.loads((folder / "run.json").read_text())["seed"]
if seed == 5:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
(folder / "calls").open("a").write(f"{os.getppid()} ")
if seed == 1:
    os.kill(os.getpid(), signal.SIGKILL)
if seed in (3, 5):
    time.sleep(600)
result = {"horizon": 1.0, "asked_horizon": 1.0, "seconds": 2.0, "error": 1e-5, "message": ""}
result |= {"status": "STIFF" if seed == 2 else "FINISHED", "failed": seed == 2}
(folder / "result.json").write_text(json.dumps(result))
"""


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    # As an argument, because the workers of a cluster do not see what a test replaces.
    fake = functools.partial(supervise, program=(sys.executable, str(script)))
    monkeypatch.setattr("diracflow.sweep.session.supervise", fake)

    def read(seeds):
        (tmp_path / "study.toml").write_text(f'seed = {seeds}\n[[sde]]\nmodel = "brownian"')
        return read_sweep(tmp_path / "study.toml")

    # A process in the background may have been started with SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield read
    signal.signal(signal.SIGINT, before)


def parents(sweep):
    """For each run, the processes that have started it."""
    return [(sweep.folder(run).path / "calls").read_text().split() for run in sweep.runs]


def statuses(rows):
    return [row["status"] for row in rows]


def test_other_runs_continue_and_failures_are_retried_only_on_request(sweep):
    found = sweep([0, 1, 2])
    reports = []
    rows = run_sweep(found, jobs=2, report=lambda *args: reports.append(args))
    assert statuses(rows) == ["FINISHED", "KILLED", "STIFF"]
    assert "SIGKILL" in rows[1]["message"]
    assert [args[1:] for args in reports] == [(1, 3), (2, 3), (3, 3)]
    assert json.loads((found.out / "table.json").read_text()) == rows
    assert len((found.out / "table.csv").read_text().splitlines()) == 4

    assert run_sweep(found, "dask", address="nowhere") == rows  # nothing is left to run
    run_sweep(found, retry=True)
    assert [*map(len, parents(found))] == [1, 2, 2]
    more = sweep([0, 1, 2, 4])
    run_sweep(more)
    assert [*map(len, parents(more))] == [1, 2, 2, 1]


def interrupt_once_started(sweep, seed, signals):
    """Send signals to this process while the run with a seed is under way."""
    run = next(run for run in sweep.runs if run.seed == seed)

    def send():
        while not (sweep.folder(run).path / "calls").exists():
            time.sleep(0.05)
        for number in signals:
            os.kill(os.getpid(), number)
            time.sleep(0.5)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_interruption_ends_all_processes_and_leaves_the_rest_to_be_run(sweep, jobs):
    found = sweep([0, 3, 4] if jobs == 1 else [0, 3])
    thread = interrupt_once_started(found, 3, [signal.SIGINT])
    with pytest.raises(KeyboardInterrupt):
        run_sweep(found, jobs=jobs)
    thread.join()
    rest = ["WAITING"] * (len(found.runs) - 1)
    assert statuses(sweep_table(found)) == ["FINISHED", *rest]
    assert not (found.out / "stop").exists()
    assert len((found.out / "table.csv").read_text().splitlines()) == 1 + len(found.runs)


def test_a_second_interruption_kills(sweep):
    found = sweep([5])
    thread = interrupt_once_started(found, 5, [signal.SIGINT, signal.SIGINT])
    with pytest.raises(KeyboardInterrupt):
        run_sweep(found)
    thread.join()
    assert statuses(sweep_table(found)) == ["WAITING"]


def test_an_exception_in_a_report_stops_the_runs(sweep):
    found = sweep([0, 3])

    def report(row, ended, total):
        raise RuntimeError("no space left")

    with pytest.raises(RuntimeError, match="no space left"):
        run_sweep(found, jobs=2, report=report)
    assert statuses(sweep_table(found)) == ["FINISHED", "WAITING"]


def test_a_directory_has_one_sweep_at_a_time(sweep):
    found = sweep([0])

    def report(*_):
        with pytest.raises(ValueError, match="already running"):
            run_sweep(found)

    assert statuses(run_sweep(found, report=report)) == ["FINISHED"]


def test_no_run_starts_after_a_request_to_stop(sweep, tmp_path):
    found = sweep([0])
    folder = found.folder(found.runs[0])
    folder.prepare(found.runs[0])
    (tmp_path / "stop").write_text("stop")
    supervise(folder.path, found.base, tmp_path / "stop")
    assert folder.result() is None
    assert not (folder.path / "log.txt").exists()


def test_a_process_that_cannot_start_is_a_failed_run(sweep, tmp_path):
    found = sweep([0])
    folder = found.folder(found.runs[0])
    folder.prepare(found.runs[0])
    supervise(folder.path, found.base, tmp_path / "stop", program=(str(tmp_path / "missing"),))
    assert folder.result()["status"] == "KILLED"


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs CPU affinity")
def test_simultaneous_runs_have_disjoint_cores(sweep):
    from diracflow.sweep.session import _disjoint_cores

    allowed = os.sched_getaffinity(0)
    cores = _disjoint_cores(len(allowed), 1)
    assert {core for _ in allowed for core in cores.get()} == allowed
    assert _disjoint_cores(len(allowed) + 1, 1) is None


@pytest.mark.parametrize("package, backend", [("distributed", "dask"), ("ray", "ray")])
def test_a_missing_package_is_named(package, backend, monkeypatch, sweep):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModuleNotFoundError, match=rf"pip install 'diracflow\[{backend}\]'"):
        run_sweep(sweep([0]), backend)


def test_wrong_arguments_are_errors(sweep):
    found = sweep([0])
    with pytest.raises(ValueError, match="`backend` must be one of local, dask, ray; got 'slurm'"):
        run_sweep(found, "slurm")
    with pytest.raises(ValueError, match="`address` is that of a cluster"):
        run_sweep(found, address="tcp://host:8786")
    with pytest.raises(ValueError, match="`jobs` must be at least 1"):
        run_sweep(found, jobs=0)
    assert not found.out.exists()


def test_a_dask_cluster_gives_the_same_table(sweep):
    distributed = pytest.importorskip("distributed")
    found = sweep([0, 1, 2])
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=True, dashboard_address=None
    ) as cluster:
        rows = run_sweep(found, "dask", address=cluster.scheduler_address)
    assert statuses(rows) == ["FINISHED", "KILLED", "STIFF"]
    # The worker has started the processes, not this process.
    assert all(str(os.getpid()) not in started for started in parents(found))
    assert rows == run_sweep(found)  # nothing is left to run


def test_a_dask_cluster_for_one_run_is_an_error(sweep):
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            processes=False,
            dashboard_address=None,
            protocol="tcp",
        ) as cluster,
        pytest.raises(ValueError, match="at least two runs"),
    ):
        run_sweep(sweep([0]), "dask", address=cluster.scheduler_address)


@pytest.mark.parametrize("package, backend", [("distributed", "dask"), ("ray", "ray")])
def test_a_local_cluster_runs_and_is_interrupted(package, backend, sweep):
    pytest.importorskip(package)
    found = sweep([0, 1, 2, 3])
    thread = interrupt_once_started(found, 3, [signal.SIGINT])
    with pytest.raises(KeyboardInterrupt):
        run_sweep(found, backend)
    thread.join()
    assert statuses(sweep_table(found)) == ["FINISHED", "KILLED", "STIFF", "WAITING"]
    here = {str(os.getpid())} == {parent for started in parents(found) for parent in started}
    assert here == (backend == "dask")  # whose local workers are threads


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_an_interrupted_sweep_resumes_bit_for_bit(tmp_path):
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
    printed = child.communicate()[1]
    assert child.returncode == 130, printed
    assert "To resume: diracflow sweep study.toml" in printed
    for out in ("first", "second"):
        subprocess.run([*command, out], cwd=tmp_path, check=True)
    first, second = (
        next(tmp_path.glob(f"{out}/runs/*/model.dflow")) for out in ("first", "second")
    )
    import diracflow as df

    paths = [df.load(file).trajectory.thetas.tobytes() for file in (first, second)]
    assert paths[0] == paths[1]
    assert "resumed at t=" in (first.parent / "log.txt").read_text()
