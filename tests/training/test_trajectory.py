import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diracflow.training.state import Trajectory

CLOCKS = np.array([0.1, 0.3, 0.4, 1.0])


def cubic(clock):
    return np.stack([clock**3 - clock, 2 * clock**2], axis=-1)


def slope(clock):
    return np.stack([3 * clock**2 - 1, 4 * clock], axis=-1)


PATH = Trajectory(CLOCKS, cubic(CLOCKS), slope(CLOCKS[:-1]), slope(CLOCKS[1:]))


@pytest.mark.parametrize("clock", [0.1, 0.17, 0.3, 0.35, 0.4, 0.77, 1.0])
def test_cubics_are_interpolated_exactly(clock):
    np.testing.assert_allclose(PATH(jnp.array(clock**2)), cubic(np.array(clock)), atol=1e-14)


def test_derivative_at_knots_is_the_stored_velocity():
    tau = jnp.array(0.3**2)
    # d theta / d tau = (d theta / d clock) / (2 clock)
    np.testing.assert_allclose(jax.jacfwd(PATH)(tau), slope(0.3) / 0.6, rtol=1e-10)


def test_each_step_keeps_its_own_velocities():
    # Slopes that jump at a knot leave the values there alone.
    path = Trajectory(CLOCKS, cubic(CLOCKS), slope(CLOCKS[:-1]) + 1, slope(CLOCKS[1:]) - 1)
    knots = jax.vmap(path)(jnp.asarray(CLOCKS**2))
    np.testing.assert_allclose(knots, cubic(CLOCKS), atol=1e-14)


def test_without_steps_it_stays():
    path = Trajectory(CLOCKS[:1], cubic(CLOCKS)[:1], np.zeros((0, 2)), np.zeros((0, 2)))
    np.testing.assert_array_equal(path(jnp.array(0.5)), cubic(CLOCKS)[0])


def test_before_the_first_knot_nothing_moves():
    np.testing.assert_array_equal(PATH(jnp.array(1e-8)), cubic(CLOCKS)[0])


def test_fourth_order_between_knots():
    errors = []
    for n in (10, 20, 40):
        clocks = np.linspace(0.1, 1.0, n + 1)
        values, slopes = np.sin(5 * clocks)[:, None], 5 * np.cos(5 * clocks)[:, None]
        path = Trajectory(clocks, values, slopes[:-1], slopes[1:])
        middle = (clocks[1:] + clocks[:-1]) / 2
        found = jax.vmap(path)(jnp.asarray(middle**2))[:, 0]
        errors.append(np.max(np.abs(found - np.sin(5 * middle))))
    slopes = np.diff(np.log(errors)) / np.log(0.5)
    assert np.all(np.abs(slopes - 4) < 0.2)


def test_shapes_must_agree():
    with pytest.raises(ValueError, match="3 steps"):
        Trajectory(CLOCKS, cubic(CLOCKS)[:3], slope(CLOCKS), slope(CLOCKS))
