import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from diracflow.galerkin.collocation import CUBES, draw

STARTS = df.Normal([1.0, -2.0], [0.5, 2.0])


@pytest.mark.parametrize("name", CUBES)
def test_draws_follow_the_laws(name, getkey):
    n = 4096
    draws = draw(CUBES[name], getkey(), STARTS, 2, n)
    # Five standard errors of a mean and of a standard deviation for independent draws.
    for values, mean, std in (
        (draws.x0, STARTS.mean, STARTS.factor),
        (draws.noise, np.zeros(2), np.ones(2)),
    ):
        assert np.all(np.abs(values.mean(axis=0) - mean) < 5 * std / np.sqrt(n))
        assert np.all(np.abs(values.std(axis=0) - std) < 5 * std / np.sqrt(2 * n))


def test_sobol_beats_montecarlo_by_far(getkey):
    # Root mean square error of the mean of x0^2 + noise^2 over sixteen keys.
    def error(name):
        errors = []
        for key in jr.split(jr.key(7), 16):
            draws = draw(CUBES[name], key, df.Normal(0.0, 1.0).expand(1), 1, 1024)
            errors.append(jnp.mean(draws.x0**2 + draws.noise**2) - 2)
        return np.sqrt(np.mean(np.square(errors)))

    # sqrt(4 / 1024) = 0.06 for independent draws; Sobol points reach a few 1e-3.
    assert error("sobol") < error("montecarlo") / 5


@pytest.mark.parametrize("name", CUBES)
def test_equal_keys_give_equal_draws_and_others_do_not(name, getkey):
    key, other = getkey(), getkey()
    first, again, different = (
        draw(CUBES[name], k, STARTS, 2, 100).noise for k in (key, key, other)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.any(np.asarray(first) == np.asarray(different))


def test_any_number_of_points_is_finite(getkey):
    draws = draw(CUBES["sobol"], getkey(), STARTS, 2, 1000)
    assert draws.noise.shape == (1000, 2)
    assert np.all(np.isfinite(draws.noise))
