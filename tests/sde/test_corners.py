"""Feller's test sees the corners of a box of parameters."""

import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from diracflow.sde import boundaries as module
from diracflow.sde.boundaries import boundaries
from diracflow.sde.conditioning import conditioning_laws

BOX = {"rate": df.Uniform(1, 4), "level": df.Uniform(0.2, 0.4)}


def found(noise, **others):
    model = df.models.cir_family()
    laws = conditioning_laws(model.sde, model.starts, BOX | {"noise": noise} | others, None)
    return laws.law, boundaries(model.sde, laws.law, 0.0, 1.0)[0]


@pytest.mark.parametrize("noise, accessible", [(0.6, False), (0.65, True)])
def test_an_end_that_only_a_corner_reaches_is_noticed(noise, accessible):
    law, row = found(df.Uniform(0.1, noise))
    assert row["accessible"] == accessible
    # Feller's index of CIR is 2 * rate * level / noise**2, smallest at a corner.
    assert row["index"] == pytest.approx(2 * 1 * 0.2 / noise**2, rel=1e-3)
    _, *given = np.asarray(law.sample(jr.key(0), (module._DRAWS,))).T
    draws = 2 * given[0] * given[1] / given[2] ** 2
    assert draws.min() > 1, "no draw would have told"


def test_laws_without_ends_are_taken_between_quantiles():
    narrow, wide = (found(df.LogNormal(np.log(0.3), std))[1] for std in (0.01, 1.0))
    assert not narrow["accessible"]
    assert wide["accessible"]
