"""Pipes, terminals and signals, with the command line in a separate process.

Exit codes of errors are tested in `test_bad_commands`.
"""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import diracflow as df
from helpers import still_density

COMMAND = [sys.executable, "-m", "diracflow.cli"]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "m.dflow"
    still_density(df.models.brownian(2), source="euler").save(path)
    return str(path)


@pytest.mark.parametrize(
    "surroundings", [{"COLUMNS": "40"}, {"NO_COLOR": "1"}, {"TERM": "dumb"}, {"LC_ALL": "C"}]
)
def test_help_fits_its_surroundings(surroundings):
    done = subprocess.run(
        [*COMMAND, "run", "--help"],
        capture_output=True,
        text=True,
        env=dict(os.environ) | {"PYTHONUTF8": "0"} | surroundings,
    )
    assert done.returncode == 0, done.stderr
    assert "--preset" in done.stdout
    assert "\x1b" not in done.stdout
    width = int(surroundings.get("COLUMNS", 200))
    assert max(map(len, done.stdout.splitlines())) <= width


def test_a_reader_that_stops_early_is_no_error(file):
    where = ["--t", "0.5", "--x0", "0,0", "-n", "100000"]
    with subprocess.Popen(
        [*COMMAND, "sample", file, *where], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"x1,x2\n"
        process.stdout.close()
        err = process.stderr.read().decode()
        assert process.wait() == 141
    assert err == ""


def test_streams_may_be_closed(file, tmp_path):
    out = tmp_path / "draws.csv"
    call = " ".join(COMMAND) + f" sample {file} --t 0.5 --x0 0,0 -n 3 -o {out}"
    assert subprocess.run(f"{call} <&- >&- 2>&-", shell=True).returncode == 0
    assert np.loadtxt(out, delimiter=",", skiprows=1).shape == (3, 2)


def test_a_full_disk_gives_a_one_line_message(file):
    if not os.path.exists("/dev/full"):
        pytest.skip("needs a device that is always full")
    with open("/dev/full", "w") as full:
        done = subprocess.run([*COMMAND, "info", file], stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 3
    assert done.stderr.decode() == "diracflow: No space left on device\n"


def test_a_termination_ends_with_its_code(tmp_path):
    (tmp_path / "slow.py").write_text(
        "import time, pathlib\npathlib.Path('began').touch()\ntime.sleep(60)\n"
    )
    process = subprocess.Popen(
        [*COMMAND, "learn", "slow.py:sde", "--json"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (tmp_path / "began").exists():
        time.sleep(0.1)
        assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate()
    assert (process.returncode, err) == (143, "diracflow: Terminated.\n")
    assert json.loads(out) == {"error": "Terminated.", "exit_code": 143}


def test_only_commands_that_draw_import_matplotlib():
    modules = [
        *("explore_command", "learn_command", "model_commands"),
        *("query_commands", "series_commands", "sweep_command"),
    ]
    imports = "; ".join(f"import diracflow.cli.{name}" for name in modules)
    text = f"import sys; {imports}; assert 'matplotlib' not in sys.modules"
    found = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
