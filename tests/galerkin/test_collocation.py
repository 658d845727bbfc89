import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from diracflow.galerkin.collocation import Points, draw, tempered, widening
from diracflow.sde.quasi_random import CUBES

STARTS = df.Normal([1.0, -2.0], [0.5, 2.0])


@pytest.mark.parametrize("name", CUBES)
@pytest.mark.parametrize("effective_share", [1.0, 0.7])
def test_draws_follow_the_laws(name, effective_share, getkey):
    n = 4096
    draws = draw(CUBES[name], getkey(), STARTS, 2, n, effective_share)
    weight = np.asarray(draws.weight)
    np.testing.assert_allclose(weight.mean(), 1.0, rtol=1e-12)
    effective = n / np.mean(weight**2)
    # The share is asked of the law; five standard errors of its estimate from draws are below 0.1.
    assert abs(effective / n - effective_share) < 0.1
    # Five standard errors of a mean and of a standard deviation for independent draws.
    for values, mean, std in (
        (np.asarray(draws.x0), STARTS.mean, STARTS.factor),
        (np.asarray(draws.noise), np.zeros(2), np.ones(2)),
    ):
        found = np.average(values, axis=0, weights=weight)
        assert np.all(np.abs(found - mean) < 5 * std / np.sqrt(effective))
        spread = np.sqrt(np.average((values - found) ** 2, axis=0, weights=weight))
        assert np.all(np.abs(spread - std) < 5 * std / np.sqrt(2 * effective))


def test_widening_reaches_further_in_fewer_dimensions():
    factors = [widening(0.7, dim) for dim in (2, 4, 12, 40)]
    assert factors == sorted(factors, reverse=True)
    assert widening(1.0, 4) == 1.0


def test_widened_starts_stay_within_bounds(getkey):
    # Of a law with bounds the draws crowd towards them instead of crossing.
    box = df.Uniform([-1.0, 0.0], [1.0, 2.0])
    draws = draw(CUBES["sobol"], getkey(), box, 2, 1024, 0.5)
    x0 = np.asarray(draws.x0)
    assert np.all((x0 >= np.array([-1.0, 0.0])) & (x0 <= np.array([1.0, 2.0])))
    assert np.mean(np.abs(x0[:, 0]) > 0.9) > 0.15  # a tenth without widening


def test_sobol_beats_montecarlo_by_far(getkey):
    # Root mean square error of the mean of x0^2 + noise^2 over sixteen keys.
    def error(name):
        errors = []
        for key in jr.split(jr.key(7), 16):
            draws = draw(CUBES[name], key, df.Normal(0.0, 1.0).expand(1), 1, 1024, 1.0)
            errors.append(jnp.mean(draws.x0**2 + draws.noise**2) - 2)
        return np.sqrt(np.mean(np.square(errors)))

    # sqrt(4 / 1024) = 0.06 for independent draws; Sobol points reach a few 1e-3.
    assert error("sobol") < error("montecarlo") / 5


@pytest.mark.parametrize("name", CUBES)
def test_equal_keys_give_equal_draws_and_others_do_not(name, getkey):
    key, other = getkey(), getkey()
    first, again, different = (
        draw(CUBES[name], k, STARTS, 2, 100, 1.0).noise for k in (key, key, other)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.any(np.asarray(first) == np.asarray(different))


def test_any_number_of_points_is_finite(getkey):
    draws = draw(CUBES["sobol"], getkey(), STARTS, 2, 1000, 1.0)
    assert draws.noise.shape == (1000, 2)
    assert np.all(np.isfinite(draws.noise))


def test_a_forcing_far_beyond_the_others_counts_as_a_large_one(getkey):
    weight = jnp.linspace(0.5, 1.5, 1000)
    forcing = jr.normal(getkey(), (1000,)).at[7].set(1e4)
    points = Points(jnp.zeros((1000, 2)), jnp.zeros((1000, 2)), weight)
    found = tempered(points, jnp.sqrt(weight) * forcing)
    assert jnp.mean(found.weight) == pytest.approx(1.0, rel=1e-12)
    others = np.delete(np.asarray(found.weight / weight), 7)
    np.testing.assert_allclose(others, others[0], rtol=1e-12)
    # What it adds to a mean of squares is that of a forcing of twenty medians.
    median = float(jnp.median(jnp.abs(forcing)))
    counted = float(found.weight[7] / others[0] / weight[7]) * 1e8
    assert counted == pytest.approx((20 * median) ** 2, rel=1e-9)


def test_usual_forcings_leave_the_weights_alone(getkey):
    weight = jnp.ones(1000)
    points = Points(jnp.zeros((1000, 1)), jnp.zeros((1000, 1)), weight)
    for forcing in (jr.normal(getkey(), (1000,)), jnp.zeros(1000)):
        np.testing.assert_array_equal(tempered(points, forcing).weight, weight)


def test_points_of_no_weight_do_not_change_the_others(getkey):
    forcing = jr.normal(getkey(), (101,)).at[3].set(1e3)
    weight, filling = jnp.ones(101), jnp.zeros(27)
    empty = jnp.zeros((101, 1))
    alone = tempered(Points(empty, empty, weight), forcing)
    filled = tempered(
        Points(*2 * (jnp.zeros((128, 1)),), jnp.append(weight, filling) * 128 / 101),
        jnp.append(forcing * np.sqrt(128 / 101), filling),
    )
    np.testing.assert_allclose(filled.weight[:101] * 101 / 128, alone.weight, rtol=1e-12)
    assert not np.any(filled.weight[101:])
