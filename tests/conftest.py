import itertools

import jax
import jax.random as jr
import pytest

import diracflow as df

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture
def getkey(request):
    """Fresh keys for one test, fixed by the name of the test."""
    seed = sum(map(ord, request.node.name))
    counter = itertools.count()
    return lambda: jr.fold_in(jr.key(seed), next(counter))


@pytest.fixture(scope="module", autouse=True)
def _compiled_code_is_let_go():
    """Thousands of programs in one process exhaust the memory maps that the compiler needs."""
    yield
    jax.clear_caches()


@pytest.fixture(scope="session")
def benes():
    """The Beneš model over a short horizon."""
    return df.models.benes()


@pytest.fixture(scope="session")
def trained(benes):
    """A small real training, shared by all tests that need a learned density."""
    return df.learn(
        benes.sde,
        benes.starts,
        0.3,
        key=jr.key(0),
        preset="quick",
        hidden=4,
        tolerance=1e-2,
        certify=False,  # compiles for seconds; `tests/certify` does it
    )
