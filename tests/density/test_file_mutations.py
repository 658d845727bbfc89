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
            assert set(read_header(path)) == set(unpacked(content)[0])


CASES = {
    "layers of a size beyond the file": (
        {"settings": {"layers": 9998, "hidden": 9999}},
        "the file",
    ),
    "a dimension beyond the file": ({"sde": {"dim": 10**9}}, "sde.dim"),
    "an argument that would allocate": (
        {"sde": {"arguments": {"dim": 10**9}}},
        "sde.arguments.dim",
    ),
    "an unknown model": ({"sde": {"model": "__import__"}}, "sde.model"),
    "an unknown law": ({"starts": {"law": "os.system"}}, "starts.law"),
    "an unknown status": ({"status": "GREAT"}, "status"),
    "a text for a number": ({"horizon": "0.5"}, "horizon"),
    "a horizon beyond the path": (
        {"horizon": 2.0, "asked_horizon": 2.0, "leg": 2.0},
        "clocks",
    ),
    "a horizon beyond the one asked for": ({"horizon": 1.0}, "asked_horizon"),
    "a leg that is no part of it": ({"leg": 1e-3}, "`leg` must be one of"),
    "another width": ({"settings": {"hidden": 5}}, "parameters; the file holds"),
    "half a number of layers": ({"settings": {"layers": 3}}, "even"),
    "starts elsewhere": ({"starts": {"mean": [100.0, 100.0]}}, "probe_x"),
    "another angle": ({"sde": {"arguments": {"angle": 0.1}}}, "another SDE"),
    "another source": ({"settings": {"source": "closure"}}, "another source"),
    "characters that act": ({"preset": "\x1b[2J"}, "control characters"),
}


@pytest.mark.parametrize("name", CASES)
def test_forgeries_are_told_what_is_wrong(name, contents, tmp_path):
    changes, message = CASES[name]
    header, arrays = unpacked(contents[1])
    path = tmp_path / "model.dflow"
    path.write_bytes(signed(_merged(header, changes), arrays))
    with pytest.raises(df.ModelFileError, match=message):
        df.load(path)


def _merged(header, changes):
    nested = {
        name: _merged(header[name], value) if isinstance(value, dict) else value
        for name, value in changes.items()
    }
    return {**header, **nested}


def test_knots_must_increase(contents, tmp_path):
    header, arrays = unpacked(contents[1])
    path = tmp_path / "model.dflow"
    path.write_bytes(signed(header, {**arrays, "clocks": arrays["clocks"][::-1].copy()}))
    with pytest.raises(df.ModelFileError, match="`clocks` must increase"):
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
