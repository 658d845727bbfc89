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
        layers=4,
        samples=512,
        tolerance=3e-3,
        regularisation=1e-8,
    )
