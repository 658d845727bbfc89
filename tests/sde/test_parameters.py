"""Parameters of the SDE in queries, on an exact density that has them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import diracflow as df

OU = df.ExactOrnsteinUhlenbeck()
PARAMS = {"rate": 0.8, "level": 0.3, "noise": 0.6}
FIXED = df.models.ornstein_uhlenbeck(1, **PARAMS).exact
X, T, X0 = np.array([[0.1], [0.9], [-2.0]]), 0.7, np.array([0.4])


def test_fixed_parameters_give_the_linear_density():
    # Both in closed form; rounding grows with the 2**10 doublings of the linear one.
    for query in ("log_prob", "start_score"):
        with_params = getattr(OU, query)(X, T, X0, params=PARAMS)
        np.testing.assert_allclose(with_params, getattr(FIXED, query)(X, T, X0), rtol=1e-11)


def test_start_score_is_the_gradient_in_the_start():
    benes, x, x0 = df.models.benes().exact, np.array([0.1, 1.0]), jnp.array([0.4, -0.2])
    expected = jax.grad(lambda x0: benes.log_prob(x, T, x0))(x0)
    np.testing.assert_allclose(benes.start_score(x, T, x0), expected, rtol=1e-12)
    assert benes.start_score(np.zeros((7, 1, 2)), np.array([0.1, 0.2, 0.3]), x0).shape == (7, 3, 2)


def test_samples_are_those_of_the_linear_density(getkey):
    key = getkey()
    draws = OU.sample(key, T, X0, (5,), params=PARAMS)
    np.testing.assert_allclose(draws, FIXED.sample(key, T, X0, (5,)), rtol=1e-11)


def test_parameters_broadcast_with_points_times_and_starts(getkey):
    rate, noise = np.linspace(0.5, 2.0, 4), np.array([0.3, 0.7])[:, None]
    params = {"rate": rate, "level": 0.3, "noise": noise}
    values = OU.log_prob(X[:, None, None], T, X0, params)
    assert values.shape == (3, 2, 4)
    one = OU.log_prob(X[2], T, X0, {"rate": rate[1], "level": 0.3, "noise": noise[1, 0]})
    np.testing.assert_allclose(values[2, 1, 1], one, rtol=1e-13)
    assert OU.score(X[:, None, None], T, X0, params).shape == (3, 2, 4, 1)
    assert OU.sample(getkey(), np.full(4, T), X0, (6,), params).shape == (6, 2, 4, 1)


def test_frozen_view_keeps_its_parameters():
    law = OU.at(T, X0, PARAMS)
    np.testing.assert_allclose(law.logpdf(X), OU.log_prob(X, T, X0, PARAMS), rtol=1e-14)
    np.testing.assert_allclose(law.pdf(X), OU.prob(X, T, X0, PARAMS), rtol=1e-14)
    assert law.rvs(3, random_state=1).shape == (3, 1)


def test_jit_vmap_and_grad_in_parameters():
    def value(rate):
        return OU.log_prob(X[0], T, X0, PARAMS | {"rate": rate})

    rates = jnp.array([0.5, 0.8, 1.1])
    eager = [value(rate) for rate in rates]
    np.testing.assert_allclose(jax.jit(jax.vmap(value))(rates), eager, rtol=1e-13)
    step = 1e-5
    difference = (value(0.8 + step) - value(0.8 - step)) / (2 * step)
    # Central differences: an error of order step**2, and rounding of 1e-16 / step.
    np.testing.assert_allclose(jax.grad(value)(0.8), difference, rtol=1e-8)


def test_rate_zero_is_brownian_motion_and_smooth():
    brownian = df.models.brownian(1).exact

    def value(rate):
        return OU.log_prob(X[1], T, X0, {"rate": rate, "level": 0.3, "noise": 1.0})

    np.testing.assert_allclose(value(0.0), brownian.log_prob(X[1], T, X0), rtol=1e-14)
    # Slopes on both sides of the switch to a series: they differ by the second derivative, of
    # order one, times the distance.
    threshold = jnp.finfo(float).eps ** 0.2 / T
    slopes = [jax.grad(value)(threshold * (1 + e)) for e in (-1e-6, 1e-6)]
    np.testing.assert_allclose(slopes[0], slopes[1], rtol=1e-8)


BAD_PARAMS = {
    "none": (OU, None, "depends on.*`level`, `noise`, `rate` missing"),
    "one missing": (OU, {"rate": 1.0, "level": 0.0}, "`noise` missing"),
    "unknown": (OU, PARAMS | {"speed": 1.0}, "has no `speed`"),
    "given to one without": (FIXED, PARAMS, "has no parameters"),
    "nan": (OU, PARAMS | {"rate": np.nan}, "`rate` must be finite.*nan"),
    "out of bounds": (OU, PARAMS | {"noise": [1.0, -0.5]}, r"`noise` must lie in \(0, inf\).*-0.5"),
    "zero scale": (OU, PARAMS | {"noise": 0.0}, r"\(0, inf\).*got 0"),
    "strings": (OU, PARAMS | {"rate": "fast"}, "`rate` must be an array of real numbers"),
    "a vector": (OU, np.ones(3), "must map names to numbers.*ndarray"),
    "shapes": (OU, PARAMS | {"rate": np.ones(4), "level": np.ones(2)}, "broadcast|shape"),
}


@pytest.mark.parametrize("density, params, message", BAD_PARAMS.values(), ids=BAD_PARAMS)
def test_bad_parameters_are_refused(density, params, message):
    with pytest.raises(ValueError, match=message):
        density.log_prob(X, T, X0, params)
