"""Wrong commands print one line, exit with the documented code and leave no files.

They run in this process for speed; `test_manners` starts a few as users do.
"""

import errno
import json
import os
import sys
import warnings

import numpy as np
import pytest

import diracflow as df
from diracflow.cli import app, inputs, learn_command, run_command
from diracflow.cli.terminal import Exit
from helpers import still_density


@pytest.fixture(scope="module")
def density():
    """A model whose flow is the identity: its source is exact for Brownian motion."""
    return still_density(df.models.brownian(2), source="euler")


@pytest.fixture
def folder(tmp_path, density, monkeypatch):
    """A folder with good and bad files."""
    monkeypatch.chdir(tmp_path)
    for module in (inputs, run_command, learn_command):
        monkeypatch.setattr(module, "prepare_jax", lambda: None)
    load = inputs.load
    known = lambda path, sde: density if str(path) == "m.dflow" else load(path, sde)
    monkeypatch.setattr(inputs, "load", known)
    for name, text in FILES.items():
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    np.savez(tmp_path / "other.npz", y=np.zeros((2, 2)))
    np.savez(tmp_path / "short.npz", times=np.zeros(2), states=np.zeros((3, 2)))
    np.savez(tmp_path / "objects.npz", x=np.array([None, 1]))
    (tmp_path / "folder.csv").mkdir()
    return tmp_path


@pytest.fixture
def call(folder, monkeypatch, capsys):
    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["diracflow", *arguments])
        with pytest.raises(SystemExit) as end:
            app.main()
        return end.value.code, *capsys.readouterr()

    return call


OWN = "import jax.numpy as jnp\nimport diracflow as df\n"
FILES = {
    "m.dflow": "read as the model",
    "junk.dflow": "no model",
    "empty.csv": "",
    "names.csv": "a,b\n",
    "words.csv": "1,2\none,two\n",
    "ragged.csv": "1,2\n3\n",
    "binary.csv": b"\xff\xfe\x00\x01",
    "one.csv": "1\n2\n",
    "nan.csv": "nan,1\n",
    "back.csv": "0,1,1\n1,0,0\n0.5,0,0\n",
    "path.csv": "0,1,1\n0.5,0,0\n0.9,0,0\n",
    "narrow.csv": "0,1\n0.5,0\n0.9,0\n",
    "junk.npz": "no archive",
    "empty.npz": "",
    "syntax.py": "sde = (\n",
    "raises.py": OWN + "\n\nlevel = undefined + 1\n",
    "imports.py": "import no_such_package\n",
    "exits.py": "import sys\nsys.exit(3)\n",
    "wrong.py": OWN + "sde = df.SDE(lambda t, x: x[:1],\n    lambda t, x: jnp.eye(2), 2)\n",
    "own.py": OWN + "sde = df.SDE(lambda t, x: -x, lambda t, x: jnp.eye(1), 1)\nother = 1\n",
}
M, AT = "m.dflow", ("--t", "0.1", "--x0", "0,0")
NORMAL = '{"law": "Normal", "mean": 0, "std": 1}'
LEARN = ("learn", "own.py:sde", "--starts", NORMAL, "--horizon", "0.1")
INFER = ("infer", "ou", "narrow.csv", "--prior")
PRIOR = json.dumps({n: {"law": "LogNormal"} for n in ("rate", "level", "noise")})
BRIDGE = ("bridge", M, *AT, "--x1", "0,0")
FILTER = ("filter", M, "narrow.csv", "--noise")
COMMANDS = {
    # errors that Typer finds
    "nothing": (("",), "No such command"),
    "unknown command": (("fly",), "No such command 'fly'"),
    "unknown option": (("info", M, "--fast"), "No such option"),
    "no argument": (("info",), "Missing argument"),
    "no time": (("sample", M, "--x0", "0,0"), "Missing option '--t'"),
    "time in words": (("sample", M, "--t", "soon", "--x0", "0,0"), "Invalid value for '--t'"),
    "count in words": (("sample", M, *AT, "-n", "many"), "Invalid value for '--count'"),
    "seed negative": (("sample", M, *AT, "--seed", "-1"), "--seed"),
    "seed too large": (("sample", M, *AT, "--seed", str(2**40)), "--seed"),
    "seed in words": (("sample", M, *AT, "--seed", "key"), "Invalid value for '--seed'"),
    "too much": (("info", M, "more"), "unexpected extra argument"),
    # run
    "unknown model": (("run", "lorenz"), "there are benes, brownian"),
    "unknown preset": (("run", "benes", "--preset", "best"), "one of quick, accurate, paper"),
    "unknown setting": (("run", "benes", "--set", "layerz=4"), "Unknown setting 'layerz'"),
    "half a setting": (("run", "benes", "--set", "layers"), "name=value"),
    "odd layers": (("run", "benes", "--set", "layers=3"), "must be even"),
    "tolerance": (("run", "benes", "--set", "tolerance=-1"), "strictly between"),
    "no starts": (("run", "benes", "--starts", "0"), "Invalid value for '--starts'"),
    "out a file": (("run", "benes", "--out", "own.py"), "exists"),
    # files of models
    "absent model": (("info", "nowhere.dflow"), "No model file at nowhere.dflow"),
    "junk model": (("info", "junk.dflow"), "junk.dflow"),
    "a folder": (("info", "folder.csv"), "folder.csv"),
    "check junk": (("check", "junk.dflow"), "junk.dflow"),
    "check limit": (("check", M, "--limit", "2"), "must lie in (0, 1]"),
    "check limit NaN": (("check", M, "--limit", "nan"), "must lie in (0, 1]"),
    "report no starts": (("report", M, "--starts", "0"), "Invalid value for '--starts'"),
    "explore port": (("explore", M, "--port", "65536"), "Invalid value for '--port'"),
    "sample absent": (("sample", "nowhere.dflow", *AT), "No model file"),
    # density and sample
    "time zero": (("sample", M, "--t", "0", "--x0", "0,0"), "point mass"),
    "time negative": (("sample", M, "--t", "-1", "--x0", "0,0"), "must lie in (0, 1]"),
    "time NaN": (("sample", M, "--t", "nan", "--x0", "0,0"), "must lie in (0, 1]"),
    "time too late": (("density", M, "--t", "9", "--x0", "0,0", "--x", "0,0"), "longer horizon"),
    "nowhere": (("density", M, *AT), "Give either `--x`"),
    "twice": (("density", M, *AT, "--x", "0,0", "--points", "nan.csv"), "Give either `--x`"),
    "point short": (("density", M, *AT, "--x", "1"), "`--x` needs 2 numbers"),
    "point in words": (("density", M, *AT, "--x", "a,b"), "comma-separated numbers"),
    "point NaN": (("density", M, *AT, "--x", "nan,0"), "contains NaN"),
    "start short": (("sample", M, "--t", "0.1", "--x0", "0"), "`--x0` needs 2 numbers"),
    "start infinite": (("sample", M, "--t", "0.1", "--x0", "inf,0"), "`x0` must be finite"),
    "points absent": (("density", M, *AT, "--points", "no.csv"), "no.csv"),
    "points a folder": (("density", M, *AT, "--points", "folder.csv"), "folder.csv"),
    "points empty": (("density", M, *AT, "--points", "empty.csv"), "holds no rows"),
    "points only names": (("density", M, *AT, "--points", "names.csv"), "holds no rows"),
    "points in words": (("density", M, *AT, "--points", "words.csv"), "comma-separated numbers"),
    "points ragged": (("density", M, *AT, "--points", "ragged.csv"), "from 2 to 1 at row 2"),
    "points binary": (("density", M, *AT, "--points", "binary.csv"), "comma-separated numbers"),
    "points short": (("density", M, *AT, "--points", "one.csv"), "2 numbers per row"),
    "points NaN": (("density", M, *AT, "--points", "nan.csv"), "contains NaN"),
    "points junk": (("density", M, *AT, "--points", "junk.npz"), "not an NPZ file"),
    "points no archive": (("density", M, *AT, "--points", "empty.npz"), "not an NPZ file"),
    "points objects": (("density", M, *AT, "--points", "objects.npz"), "not an NPZ file"),
    "points others": (("density", M, *AT, "--points", "other.npz"), "it holds y"),
    "points in Excel": (("density", M, *AT, "--points", "a.xlsx"), ".csv or .npz"),
    "no draws": (("sample", M, *AT, "-n", "0"), "Invalid value for '--count'"),
    "out in Excel": (("sample", M, *AT, "-o", "a.xlsx"), ".csv or .npz"),
    "out nowhere": (("sample", M, *AT, "-o", "no/a.csv"), "no folder no"),
    "out a folder": (("sample", M, *AT, "-o", "folder.csv"), "is a folder"),
    "params": (("sample", M, *AT, "--params", '{"rate": 1}'), "has no parameters"),
    "params in words": (("sample", M, *AT, "--params", "rate=1"), "maps names to numbers"),
    "params a list": (("sample", M, *AT, "--params", "[1]"), "maps names to numbers"),
    "params text": (("sample", M, *AT, "--params", '{"rate": "a"}'), "maps names to numbers"),
    "start time": (("sample", M, *AT, "--start-time", "1"), "only for starts at time 0"),
    # users' files
    "SDE unnamed": (("sample", M, *AT, "--sde", "own.py"), "FILE.py:NAME"),
    "SDE absent": (("sample", M, *AT, "--sde", "no.py:sde"), "No Python file at no.py"),
    "SDE of another name": (("sample", M, *AT, "--sde", "own.py:ode"), "defines no 'ode'"),
    "SDE a number": (("sample", M, *AT, "--sde", "own.py:other"), "found int"),
    "SDE syntax": (("sample", M, *AT, "--sde", "syntax.py:sde"), "SyntaxError"),
    "SDE name": (("sample", M, *AT, "--sde", "raises.py:sde"), "line 5: level = undefined + 1"),
    "SDE import": (("learn", "imports.py:sde"), "line 1: import no_such_package"),
    "SDE exit": (("learn", "exits.py:sde"), "line 2: sys.exit(3)"),
    "SDE shapes": (("learn", "wrong.py:sde"), "line 3: sde = df.SDE("),
    # learn
    "learn no starts": (("learn", "own.py:sde"), "needs `--starts`"),
    "learn no horizon": (LEARN[:4], "needs `--horizon`"),
    "learn horizon": ((*LEARN[:5], "-1"), "`horizon` must be positive"),
    "learn starts": ((*LEARN[:3], "normal"), "written as JSON"),
    "learn law": ((*LEARN[:3], '{"law": "Cauchy"}'), "Unknown law 'Cauchy'"),
    "learn law argument": ((*LEARN[:3], '{"law": "Normal", "men": 0}'), "written as JSON"),
    "learn law std": ((*LEARN[:3], '{"law": "Normal", "std": -1}'), "must be positive"),
    "learn law list": ((*LEARN[:3], "[]"), "Unknown law"),
    "learn params": ((*LEARN, "--params", "rate"), "maps parameters to laws"),
    "learn others": ((*LEARN, "--params", '{"a": {"law": "Uniform"}}'), "has no parameters"),
    "learn start time": ((*LEARN, "--start-time", "noon"), "written as JSON"),
    "learn start NaN": ((*LEARN, "--start-time", "nan"), "finite number"),
    "learn preset": ((*LEARN, "--preset", "slow"), "one of quick"),
    "learn out a folder": ((*LEARN, "-o", "folder.csv"), "is a folder"),
    "learn out below a file": ((*LEARN, "-o", "own.py/m.dflow"), "is not a folder"),
    # uses
    "bridge steps": ((*BRIDGE, "--steps", "1"), "`steps` must be at least 2"),
    "bridge paths": ((*BRIDGE, "--paths", "0"), "`paths` must be at least 1"),
    "bridge end": (("bridge", M, *AT, "--x1", "0"), "`--x1` needs 2 numbers"),
    "bridge figure": ((*BRIDGE, "--figure", "fan.doc"), "Figures are"),
    "bridge figure nowhere": ((*BRIDGE, "--figure", "no/fan.png"), "no folder no"),
    "path absent": (("loglik", M, "no.csv"), "no.csv"),
    "path narrow": (("loglik", M, "narrow.csv"), "a time and 2 numbers per row"),
    "path of one column": (("loglik", M, "one.csv"), "at least one value"),
    "path back": (("loglik", M, "back.csv"), "`times` must increase"),
    "path short": (("loglik", M, "short.npz"), "of shape (n, d)"),
    "filter noise": ((*FILTER, "0"), "positive standard deviation"),
    "filter noise infinite": ((*FILTER, "inf"), "positive standard deviation"),
    "filter components": ((*FILTER, "1", "--components", "3"), "between 1 and 2"),
    "filter component words": ((*FILTER, "1", "--components", "x"), "numbers such as 1,3"),
    "filter particles": ((*FILTER, "1", "--particles", "0"), "`particles` must be at least 1"),
    "filter too wide": (
        ("filter", M, "path.csv", "--noise", "1", "--components", "1"),
        "2 columns",
    ),
    "filter figure": ((*FILTER, "1", "--figure", "bands"), "Figures are"),
    "propagate nothing": (("propagate", M, "--t", "0.1"), "Give the initial law"),
    "propagate words": (("propagate", M, "--t", "0.1", "--law", "normal"), "written as JSON"),
    "propagate draws": (("propagate", M, "--t", "0.1", "--draws", "one.csv"), "2 numbers per row"),
    "propagate none": (
        ("propagate", M, "--t", "0.1", "--draws", "other.npz", "-n", "1"),
        "must hold arrays x",
    ),
    "infer unknown": (("infer", "lorenz", "narrow.csv", "--prior", PRIOR), "called ou and cir"),
    "infer absent": (("infer", "ou", "no.csv", "--prior", PRIOR), "no.csv"),
    "infer prior words": ((*INFER, "flat"), "maps parameters to laws"),
    "infer prior list": ((*INFER, "[]"), "maps parameters to laws"),
    "infer prior some": ((*INFER, "{}"), "missing. Pass all"),
    "infer out": ((*INFER, PRIOR, "-o", "p.csv"), "named .nc"),
    "infer out nowhere": ((*INFER, PRIOR, "-o", "no/p.nc"), "no folder no"),
    "infer chains": ((*INFER, PRIOR, "--chains", "0"), "`chains` must be at least 1"),
    "infer noise": ((*INFER, PRIOR, "--observe", "0"), "`--observe` must be a positive"),
    "infer no noise": ((*INFER, PRIOR, "--particles", "9"), "`--particles` is for noisy"),
    "infer no law": ((*INFER, PRIOR, "--observe", "1"), "no law of starts; pass `initial`"),
    "infer law": ((*INFER, PRIOR, "--observe", "1", "--initial", "wide"), "wide"),
    "infer component": (
        (*INFER, PRIOR, "--observe", "1", "--components", "2"),
        "between 1 and 1",
    ),
}


@pytest.mark.parametrize("arguments, message", COMMANDS.values(), ids=COMMANDS)
def test_wrong_commands_get_one_clear_line(arguments, message, call, folder):
    before = sorted(folder.rglob("*"))
    code, out, err = call(*arguments)
    assert message in err
    assert (code, out) == (Exit.USAGE, "")
    assert "Traceback" not in err
    assert err.startswith("diracflow: ")
    assert sorted(folder.rglob("*")) == before, "a mistake must leave nothing behind"


def test_an_error_is_an_object_where_json_is_asked_for(call):
    for arguments in (("info", "nowhere.dflow", "--json"), ("sample", M, "--json")):
        code, out, err = call(*arguments)
        found = json.loads(out)
        assert found["exit_code"] == code == Exit.USAGE
        assert found["error"] in err


@pytest.mark.parametrize(
    "error, code, said",
    [
        (
            PermissionError(errno.EACCES, "Permission denied", "a.csv"),
            3,
            "Permission denied: a.csv",
        ),
        (OSError(errno.ENOSPC, "No space left on device", "a.csv"), 3, "No space left on device"),
        (MemoryError(), 3, "Out of memory"),
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory"), 3, "RESOURCE_EXHAUSTED"),
        (df.WeightsVanished("No path carries any weight."), 1, "No path carries"),
        (ModuleNotFoundError("This needs the package `numpyro`."), 2, "needs the package"),
        (KeyboardInterrupt(), 130, "Interrupted"),
        (KeyError("spring"), 70, "please report"),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), 141, ""),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_the_error_determines_the_exit_code(error, code, said, call, monkeypatch):
    def fail(*arguments):
        raise error

    monkeypatch.setattr(inputs, "load", fail)
    found, out, err = call("sample", M, *AT)
    assert (found, out) == (code, "")
    assert said in err
    assert ("Traceback" in err) == (code == Exit.BUG)


def test_folders_that_cannot_be_written_are_noticed_first(call, monkeypatch):
    # The superuser may write anywhere.
    monkeypatch.setattr("os.access", lambda path, mode: mode != os.W_OK)
    for arguments in (("sample", M, *AT, "-o", "a.csv"), (*LEARN, "-o", "a.dflow")):
        code, _, err = call(*arguments)
        assert code == Exit.SYSTEM
        assert "cannot be written to" in err


def test_messages_do_not_mix_with_results(call, density, monkeypatch, folder):
    (folder / "loud.py").write_text("print('loud')\n" + FILES["own.py"])
    load = inputs.load

    def talking(path, sde):
        warnings.warn("a warning", UserWarning, stacklevel=1)
        return load(path, sde)

    monkeypatch.setattr(inputs, "load", talking)
    where = ("sample", M, "--t", "0.5", "--x0", "0,0", "-n", "2", "--sde", "loud.py:sde")
    code, out, err = call(*where, "--json")
    assert code == Exit.OK
    assert np.shape(json.loads(out)["x"]) == (2, 2)
    assert "loud" in err
    assert "diracflow: warning: a warning\n" in err
