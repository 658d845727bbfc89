"""Steps of linear equations against closed forms, down to rounding."""

import jax.numpy as jnp
import numpy as np
import pytest

from diracflow.sde.linear_step import linear_step, mean_exponential


@pytest.mark.parametrize("length", [1e-12, 1e-3, 1.0, 30.0])
def test_a_rate_in_one_dimension(length):
    rate, power = 1.7, 0.6
    step = linear_step(jnp.array([[-rate]]), jnp.array([[power]]), jnp.asarray(length), 20)
    change = np.expm1(-rate * length)
    # Rounding grows by a unit or two with each of the 20 doublings.
    close = {"rtol": 1e-14}
    np.testing.assert_allclose(step.change, [[change]], **close)
    np.testing.assert_allclose(step.integral, [[-change / (rate * length)]], **close)
    noise = -np.expm1(-2 * rate * length) * power / (2 * rate)
    np.testing.assert_allclose(step.noise, [[noise]], **close)


@pytest.mark.parametrize("length", [1e-8, 1e-2, 1.0])
def test_noise_that_comes_through_another_component(length):
    slope, power = jnp.array([[0.0, 1.0], [0.0, 0.0]]), jnp.diag(jnp.array([0.0, 1.0]))
    step = linear_step(slope, power, jnp.asarray(length), 8)
    expected = [[length**3 / 3, length**2 / 2], [length**2 / 2, length]]
    np.testing.assert_allclose(step.noise, expected, rtol=1e-14)
    np.testing.assert_allclose(step.change, length * slope, rtol=1e-14)


def test_mean_exponential_is_the_integral_of_the_step():
    slope = jnp.array([[-0.3, 2.0], [-2.0, -5.0]])
    step = linear_step(slope, jnp.eye(2), jnp.asarray(1.5), 7)
    np.testing.assert_allclose(mean_exponential(1.5 * slope), step.integral, rtol=1e-14)
    np.testing.assert_allclose(step.change, 1.5 * slope @ step.integral, rtol=1e-13)
