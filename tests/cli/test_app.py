import contextlib
import functools
import io
import json
import re
import subprocess
import sys

import pytest

from diracflow.cli import app, inputs, run_command
from diracflow.cli.run_command import _bounds, run_model

FEW = ("samples=64", "tolerance=0.1", "max_steps=4")
COMMAND = [sys.executable, "-m", "diracflow.cli"]


def call(*arguments, cwd=None):
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, cwd=cwd, timeout=250
    )


def run_here(folder, *arguments):
    """Run a command in this process, which spares the imports; `test_manners` starts processes.

    Returns the exit code, and what was printed.
    """
    with contextlib.ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        said = stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        told = stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["diracflow", *arguments])
        for module in (inputs, run_command):
            patch.setattr(module, "prepare_jax", lambda: None)
        with pytest.raises(SystemExit) as end:
            app.main()
    return end.value.code, said.getvalue(), told.getvalue()


@pytest.fixture
def call_here(tmp_path):
    return functools.partial(run_here, tmp_path)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A tiny run, with few draws for the figure of which each pixel is a mean over all."""
    folder = tmp_path_factory.mktemp("run")
    small = [f"--set={text}" for text in ("layers=2", "hidden=2", *FEW)]
    with pytest.MonkeyPatch.context() as patch:
        few = functools.partial(run_command.mixture_figure, count=50)
        patch.setattr(run_command, "mixture_figure", few)
        return folder, *run_here(folder, "run", "benes", "--starts", "2", *small)


def test_run_leaves_model_report_and_figures(ran):
    folder, code, said, told = ran
    assert code == 0, told
    out = folder / "runs" / "benes"
    names = {path.name for path in out.iterdir()}
    figures = {"density", "joint", "spread", "certificate", "error", "training"}
    figures |= {"moulding", "conditional", "mixture"}  # as in the paper
    files = {"model.dflow", "report.json", "report.html"}
    assert names == {*files, *(f"{name}.png" for name in figures)}
    assert "STEP_LIMIT" in (out / "report.html").read_text("utf-8")
    report = json.loads((out / "report.json").read_text())
    assert report["status"] == "STEP_LIMIT"
    assert len(report["errors"]) == 16
    assert "(source)" in said
    assert "max_steps" in told
    last = said.splitlines()[-1]
    assert re.fullmatch(r"Time: plan, .*, error bound \d+ s, .* \d+ s; \d+ s in all\.", last)


def test_info_as_text_and_as_json(ran, call_here):
    path = str(ran[0] / "runs" / "benes" / "model.dflow")
    code, text, _ = call_here("info", path)
    assert code == 0
    assert "built-in model benes" in text
    assert "STEP_LIMIT" in text
    header = json.loads(call_here("info", path, "--json")[1])
    assert header["plan"]["samples"] == 64


@pytest.mark.slow
def test_run_does_without_an_exact_density(tmp_path, capsys):
    small = {"layers": 2, "samples": 64, "tolerance": 0.1, "max_steps": 3}
    with pytest.warns(UserWarning, match="max_steps"):
        report = run_model("double_well", "quick", tmp_path, 0, 2, small)
    assert report["errors"] == []
    assert report["source"] == "closure"
    names = {path.name for path in tmp_path.iterdir()}
    figures = {"training.png", "density.png", "spread.png", "certificate.png"}
    assert names == {"model.dflow", "report.json", "report.html", *figures}
    said = capsys.readouterr()
    assert "No exact density is known" in said.out
    assert "Source: closure (" in said.err


def test_a_run_without_time_for_an_error_bound_says_how_to_get_one(tmp_path):
    said = _bounds([], tmp_path / "model.dflow")
    assert "no time for an error bound" in said
    assert f"`diracflow check {tmp_path / 'model.dflow'}`" in said


def test_help_does_not_wait_for_jax():
    code = "import sys, diracflow.cli; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    assert "run" in call("--help").stdout


MISTAKES = {
    "unknown model": (["run", "lorenz"], "No built-in model is called 'lorenz'"),
    "unknown preset": (["run", "benes", "--preset", "best"], "'best'"),
    "unknown setting": (["run", "benes", "--set", "layerz=4"], "Unknown setting 'layerz'"),
    "malformed setting": (["run", "benes", "--set", "layers"], "name=value"),
    "odd layers": (["run", "benes", "--set", "layers=3"], "must be even"),
    "idle dim": (["run", "benes", "--set", "idle_dim=5"], "idle_dim=5"),
    "no starts": (["run", "benes", "--starts", "0"], "Invalid value for '--starts'"),
    "out is a file": (["run", "benes", "--out", sys.executable], "File exists"),
    "absent file": (["info", "nowhere.dflow"], "No model file at nowhere.dflow"),
    "unknown command": (["fly"], "No such command"),
}


@pytest.mark.parametrize("arguments, message", MISTAKES.values(), ids=MISTAKES)
def test_mistakes_get_one_clear_line(arguments, message, tmp_path, call_here):
    code, _, said = call_here(*arguments)
    assert code == 2
    assert message in said
    assert "Traceback" not in said
    assert not list(tmp_path.iterdir()), "a mistake must leave nothing behind"
