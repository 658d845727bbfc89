import contextlib
import gc
import itertools
import os
import pathlib
import time

# Two workers fill two cores. Spinning BLAS threads would slow them down: the moment closure, which
# integrates small matrices, takes several times as long with them. NumPy reads this on import.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import jax.random as jr
import pytest

import diracflow as df
from diracflow.storage.files import Locked, locked
from helpers import TRAINED

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")

# Traced programs are millions of objects that stay. With Python's own thresholds the collector goes
# through them so often that it takes a twentieth of the time.
gc.set_threshold(50_000, 10, 10)

# Files that take longest, so that no worker is left with one of them at the end. The first trains
# the density that others load, while another worker is busy with the second.
LONGEST = [
    "test_learning.py",
    "planning/test_pilot.py",
    "certify/test_estimate.py",
    "distribution/test_several_components.py",
    "training/test_divided.py",
    "galerkin/test_velocity.py",
    "density/test_lattice.py",
    "cli/test_app.py",
    "training/test_fitted_loop.py",
    "training/test_resume.py",
    "test_documents.py",
    "galerkin/test_layouts.py",
    "density/test_learned_laws.py",
    "density/test_subintervals.py",
    "cli/test_uses.py",
    "planning/test_plan.py",
    "planning/test_widening.py",
    "uses/test_numpyro.py",
    "uses/test_simulation.py",
    "training/test_multiprocess.py",
]


def pytest_addoption(parser):
    parser.addoption(
        "--until", type=float, help="skip tests not begun by this time, in seconds since 1970"
    )


def pytest_collection_modifyitems(items):
    folder = pathlib.Path(__file__).parent
    rank = {folder / name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path, len(rank)))


@pytest.hookimpl(tryfirst=True)  # before fixtures are made
def pytest_runtest_setup(item):
    until = item.config.getoption("--until")
    if until is not None and time.time() > until:
        pytest.skip(f"no time was left for {item.nodeid}")


@pytest.fixture
def getkey(request):
    """Fresh keys for one test, fixed by the name of the test."""
    seed = sum(map(ord, request.node.name))
    counter = itertools.count()
    return lambda: jr.fold_in(jr.key(seed), next(counter))


@pytest.fixture(scope="module", autouse=True)
def _compiled_code_is_released():
    """Release compiled programs before they exhaust the memory maps of the process.

    Linux allows 65530 maps, and each program takes several. Programs are kept until then, because
    later modules use them again.
    """
    yield
    maps = pathlib.Path("/proc/self/maps")
    if not maps.exists() or maps.read_bytes().count(b"\n") > 25_000:
        jax.clear_caches()


def trained_once(tmp_path_factory, name, train):
    """Return the density that `train` learns in the first worker that needs it.

    The other workers wait for its file. All of them load it, so that tests do not depend on the
    number of workers.
    """
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    path = folder / f"{name}.dflow"
    while not path.exists():
        with contextlib.suppress(Locked), locked(folder / f"{name}.lock"):
            if not path.exists():
                train().save(path)
        time.sleep(0.1)
    return df.load(path)


@pytest.fixture
def few_paths(monkeypatch):
    """Simulate fewer paths: 1024 of each start for distances, and 512 for where starts move."""
    monkeypatch.setattr("diracflow.planning.near_source.MANY", 1024)
    monkeypatch.setattr("diracflow.planning.widening._PATHS", 512)


@pytest.fixture(scope="session")
def benes():
    """The Beneš model over a short horizon."""
    return df.models.benes()


@pytest.fixture(scope="session")
def trained(benes, tmp_path_factory):
    """A small real training, shared by all tests that need a learned density."""
    return trained_once(
        tmp_path_factory,
        "trained",
        lambda: df.learn(benes.sde, benes.starts, 0.3, key=jr.key(0), **TRAINED),
    )
