"""Readers of a file that another one keeps replacing see one of its contents, never a mixture."""

import pathlib
import subprocess
import sys
import threading

import numpy as np
import pytest

import diracflow as df
from helpers import stepped_density

READER = """
import sys
import jax
jax.config.update("jax_enable_x64", True)
import diracflow as df
seen = [df.load(sys.argv[1]) for _ in range(20)]
value = seen[-1].log_prob([0.1], 0.3, [0.0])
print(*(density.provenance.seconds for density in seen), float(value))
"""


@pytest.fixture(scope="module")
def versions():
    """Two densities for one path, which differ in parameters and in what they say of themselves."""
    model = df.models.ornstein_uhlenbeck(1)
    first = stepped_density(model, source="euler").with_provenance(seconds=1.0)
    second = stepped_density(model, steps=7, source="euler").with_provenance(seconds=7.0)
    return first, second


def test_threads_see_whole_files(versions, tmp_path):
    path, done = tmp_path / "model.dflow", threading.Event()
    knots = {density.provenance.seconds: len(density.trajectory.clocks) for density in versions}
    versions[0].save(path)
    failures, loads = [], []

    def read():
        while not done.is_set():
            try:
                density = df.load(path)
                assert len(density.trajectory.clocks) == knots[density.provenance.seconds]
                loads.append(density.provenance.seconds)
            except Exception as error:
                failures.append(error)
                return

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for index in range(40):
        versions[index % 2].save(path)
    while len(loads) < 6 and not failures:
        versions[len(loads) % 2].save(path)
    done.set()
    for reader in readers:
        reader.join()
    assert not failures
    assert [p.name for p in tmp_path.iterdir()] == ["model.dflow"]


def test_threads_may_ask_one_density(versions, tmp_path):
    versions[0].save(tmp_path / "model.dflow")
    density, x = df.load(tmp_path / "model.dflow"), np.linspace(-1, 1, 9)[:, None]
    expected, found = np.asarray(density.log_prob(x, 0.3, [0.0])), []
    askers = [
        threading.Thread(target=lambda: found.append(density.log_prob(x, 0.3, [0.0])))
        for _ in range(4)
    ]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    assert len(found) == 4
    for values in found:
        np.testing.assert_array_equal(values, expected)


@pytest.mark.slow
def test_processes_see_whole_files(versions, tmp_path):
    path = tmp_path / "model.dflow"
    versions[0].save(path)
    command = [sys.executable, "-c", READER, str(path)]
    readers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    count = 0
    while any(reader.poll() is None for reader in readers):
        versions[count % 2].save(path)
        count += 1
    values = {d.provenance.seconds: float(d.log_prob([0.1], 0.3, [0.0])) for d in versions}
    for reader in readers:
        assert reader.returncode == 0
        *seen, value = map(float, reader.stdout.read().split())
        assert set(seen) <= set(values)
        assert np.isclose(value, values[seen[-1]], rtol=1e-12, atol=0)
    assert pathlib.Path(path).is_file()
