"""A small share of `benchmarks/fuzz_files.py`, without building densities from what passes."""

import contextlib
import os
import subprocess
import sys

import numpy as np
import pytest

import diracflow as df
from diracflow.density.model_file import read_header
from file_mutations import ACCIDENTS, FORGERIES, foreign, forged, signed, unpacked
from helpers import stepped_density


@pytest.fixture(scope="module")
def contents(tmp_path_factory):
    """Files of a box of parameters on the half line, and of the paper's flow."""
    path = tmp_path_factory.mktemp("good") / "model.dflow"
    family = stepped_density(df.models.cir_family(), source="euler")
    paper = stepped_density(df.models.benes(), flow="affine", masks="fixed", source="euler")
    found = []
    for density in (family, paper):
        density.save(path)
        found.append(path.read_bytes())
    return found


@pytest.mark.parametrize("accident", ACCIDENTS, ids=lambda f: f.__name__)
def test_accidents_are_noticed(accident, contents, tmp_path):
    rng, path = np.random.default_rng(0), tmp_path / "model.dflow"
    for content in contents * 10:
        changed = accident(rng, content)
        if changed != content:
            path.write_bytes(changed)
            with pytest.raises(df.ModelFileError, match=str(path)):
                read_header(path)


@pytest.mark.parametrize("name", foreign())
def test_other_files_are_refused(name, tmp_path):
    path = tmp_path / "model.dflow"
    path.write_bytes(foreign()[name])
    with pytest.raises(df.ModelFileError, match=str(path)):
        df.load(path)


@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda f: f.__name__)
def test_forgeries_are_refused_or_make_sense(forgery, contents, tmp_path):
    """What passes has every entry of its kind; that a density can be built is fuzzed elsewhere."""
    rng, path = np.random.default_rng(1), tmp_path / "model.dflow"
    for content in contents * 10:
        path.write_bytes(signed(*forgery(rng, *unpacked(content))))
        with contextlib.suppress(df.ModelFileError):
            assert read_header(path)["format"] == 1


AT = "density.fields."
PROVENANCE = f"{AT}provenance.fields."
STARTS = f"{AT}scope.fields.starts"
CASES = {
    "a dimension beyond the file": ("sde.fields.dim", 10**9, "`sde.dim` must be at most"),
    "a dimension that would allocate": (f"{AT}noise_dim", 10**15, "its dimensions must be"),
    "an argument that would allocate": ("sde.fields.arguments", '{"dim": 10000}', "`dim` 2"),
    "an unknown model": ("sde.fields.model", "__import__", "No built-in model"),
    "an unknown class": (f"{STARTS}.class", "os.system", "'os.system' that is not known"),
    "another class": (f"{STARTS}.class", "Status", "`density.scope.starts`"),
    "another object": (
        f"{AT}trajectory",
        {"sde": "given"},
        "Trajectory; got SDE",
    ),
    "an unknown status": (f"{PROVENANCE}status.member", "GREAT", "status` must be a member"),
    "a text for a number": (f"{AT}horizon", "0.5", "`density.horizon` must be of the type float"),
    "a horizon beyond the path": (f"{AT}horizon", 2.0, "must end at the square root"),
    "half a number of layers": (f"{PROVENANCE}plan.fields.layers", 3.5, "of the type int"),
    "another angle": ("sde.fields.arguments", '{"angle": 0.1}', "another SDE"),
    "characters that act": (f"{PROVENANCE}plan.fields.preset", "\x1b[2J", "control characters"),
    "an array twice": (f"{AT}trajectory.fields.first.array", f"{AT[:8]}trajectory.last", "missing"),
    "a value in place of an array": (f"{AT}trajectory.fields.first", 1.5, "got 1.5"),
    "a further field": (f"{AT}further", 1, "must have the fields"),
    "an inner size": (
        f"{AT}ansatz.fields.flow.fields.blocks.fields.first.fields.idle_dim",
        2,
        "cannot be built",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_forgeries_are_told_what_is_wrong(name, contents, tmp_path):
    place, value, message = CASES[name]
    header, arrays = unpacked(contents[1])
    at, *inner = place.split(".")
    changed = header
    for step in inner:
        changed, at = changed[at], step
    changed[at] = value
    path = tmp_path / "model.dflow"
    path.write_bytes(signed(header, arrays))
    with pytest.raises(df.ModelFileError, match=message):
        df.load(path)


ARRAYS = {
    "knots that decrease": ("trajectory.clocks", lambda a: a[::-1].copy(), "must increase"),
    "values that are not finite": ("ansatz.flow.blocks.first.layer.log_reach", np.log, "finite"),
    "large parameters": ("trajectory.thetas", lambda a: 1e9 * a, "at most 10000"),
    "another type": ("trajectory.first", lambda a: a.astype(int), "got ndarray"),
    "another shape": ("trajectory.first", lambda a: a[:, 1:], "cannot be built"),
    "starts elsewhere": ("scope.starts.mean", lambda a: a + 100, "must be draws of its laws"),
    "a law without width": ("scope.starts.factor", lambda a: 0 * a, "`std` must be positive"),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_forged_arrays_are_told_what_is_wrong(name, contents, tmp_path):
    array, change, message = ARRAYS[name]
    header, arrays = unpacked(contents[1])
    with np.errstate(all="ignore"):
        arrays[f"density.{array}"] = change(arrays[f"density.{array}"])
    path = tmp_path / "model.dflow"
    path.write_bytes(signed(header, arrays))
    with pytest.raises(df.ModelFileError, match=message):
        df.load(path)


def test_parameters_whose_exponentials_overflow_are_noticed(contents, tmp_path):
    header, arrays = unpacked(contents[0])
    thetas = arrays["density.trajectory.thetas"]
    arrays["density.trajectory.thetas"] = 999 * thetas / np.abs(thetas).max()
    path = tmp_path / "model.dflow"
    path.write_bytes(signed(header, arrays))
    with pytest.raises(df.ModelFileError, match="values are not finite"):
        df.load(path)


def test_mixed_forgeries_name_the_file(contents, tmp_path):
    rng, path = np.random.default_rng(2), tmp_path / "model.dflow"
    refused = 0
    for content in contents * 50:
        path.write_bytes(forged(rng, *unpacked(content))[0])
        try:
            read_header(path)
        except df.ModelFileError as error:
            refused += str(error).startswith(f"{path}: ")
    assert refused > 50


LIMITED = """
import resource, sys
import diracflow as df
from diracflow.density.model_file import read_header
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for path in sys.argv[1:]:
    try:
        read_header(path)
    except df.ModelFileError:
        continue
    sys.exit(f"{path} was read")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_memory_is_bounded(tmp_path):
    """Bombs of 15 MB and sparse files of gigabytes take less than 200 MB to refuse."""
    bombs = {name: content for name, content in foreign().items() if len(content) > 10**5}
    paths = [tmp_path / f"{index}.dflow" for index in range(len(bombs) + 2)]
    for path, content in zip(paths, bombs.values(), strict=False):
        path.write_bytes(content)
    for path, length in zip(paths[-2:], (10, 2**40), strict=True):
        path.write_bytes(length.to_bytes(8, "little"))
    os.truncate(paths[-2], 10 * 2**30)
    os.truncate(paths[-1], 2**30)
    result = subprocess.run(
        [sys.executable, "-c", LIMITED, *map(str, paths)], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    unit = 1 if sys.platform == "darwin" else 1024
    assert int(result.stdout) * unit < 200 * 10**6
