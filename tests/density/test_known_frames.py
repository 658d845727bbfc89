"""Frames of recent queries are kept, and queries that use them have the values of the others."""

import gc

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from diracflow.density import known_frames
from helpers import stepped_density

DENSITIES = {
    "cumulants": lambda: stepped_density(df.models.double_well(), source="cumulants"),
    "domain and parameters": lambda: stepped_density(df.models.cir_family()),
}


@pytest.fixture(scope="module", params=DENSITIES.values(), ids=DENSITIES)
def density(request):
    return request.param()


def query(density, count):
    given = density.scope.law.sample(jr.key(0), (count,)).reshape(count, -1)
    x0, params = given[:, : density.dim], density._keywords(given[:, density.dim :])["params"]
    return density.sample(1, 0.2, x0, params=params), 0.2, x0, params


def test_eager_queries_have_the_values_of_compiled_ones(density):
    x, t, x0, params = query(density, 5)
    # Two programs with the same arithmetic: rounding, in sums of terms of order ten.
    inside = jax.jit(lambda x, x0: density.log_prob(x, t, x0, params))(x, x0)
    np.testing.assert_allclose(density.log_prob(x, t, x0, params), inside, rtol=1e-10, atol=1e-10)
    slopes = jax.jit(lambda x, x0: density.score(x, t, x0, params))(x, x0)
    np.testing.assert_allclose(density.score(x, t, x0, params), slopes, rtol=1e-8, atol=1e-8)
    summed = jax.grad(lambda x: jnp.sum(density.log_prob(x, t, x0, params)))(x)
    np.testing.assert_allclose(summed, slopes, rtol=1e-8, atol=1e-8)


def test_frames_of_repeated_queries_are_not_computed_again(density, monkeypatch):
    x, t, x0, params = query(density, 3)
    first = density.log_prob(x, t, x0, params)

    def refused(*_):
        raise AssertionError("frames were computed again")

    monkeypatch.setattr(known_frames, "_rows", refused)
    np.testing.assert_array_equal(density.log_prob(x, t, np.asarray(x0), params), first)
    with pytest.raises(AssertionError):
        density.log_prob(x, 0.3, x0, params)
    with pytest.raises(AssertionError):
        density.log_prob(x, t, x0 * 1.0001, params)


def test_precisions_do_not_mix(density):
    x, t, x0, params = jax.tree.map(np.asarray, query(density, 5))
    exact = density.log_prob(x, t, x0, params)
    with jax.enable_x64(False):
        single = density.log_prob(x, t, x0, params)
    assert single.dtype == np.float32
    # float32 leaves 1e-7 of states of order one, which widths of 0.01 or more make 1e-5 of a width,
    # times a distance from the mean of a few widths.
    np.testing.assert_allclose(single, exact, rtol=0, atol=5e-5)
    assert density.log_prob(x, t, x0, params).dtype == np.float64


def test_what_is_kept_is_bounded_and_goes_with_the_density():
    density = stepped_density(df.models.brownian(1), source="euler")
    for t in np.linspace(0.01, 0.4, 40):
        density.log_prob([0.1], t, [0.0])
    identity = id(density)
    assert len(known_frames._FRAMED[identity][1]) == known_frames._KEPT
    del density
    gc.collect()
    assert identity not in known_frames._FRAMED


def test_changed_arrays_are_other_starts():
    density = stepped_density(df.models.brownian(1), source="euler")
    x0 = np.zeros(1)
    before = density.log_prob(jnp.ones(1), 0.1, x0)
    x0[0] = 0.5
    after = density.log_prob(jnp.ones(1), 0.1, x0)
    assert before != after
    np.testing.assert_array_equal(after, density.log_prob(jnp.ones(1), 0.1, np.array([0.5])))
