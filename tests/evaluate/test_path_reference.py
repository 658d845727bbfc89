"""The reference by simulated paths agrees with exact densities within its own standard errors."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from diracflow.evaluate import measured_distance, reference


@pytest.mark.parametrize("name", ["benes", "cir", "linear_langevin"])
def test_it_agrees_with_exact_densities(name):
    # Noise in every component, a domain with noise that depends on the state, degenerate noise.
    model = df.models.model(name)
    x0 = model.starts.sample(jr.key(0))
    x = model.exact.sample(jr.key(1), 0.5, x0, shape=(32,))
    found = reference(model.sde, x, 0.5, x0, paths=2**14, steps=64)
    exact = np.asarray(model.exact.log_prob(x, 0.5, x0))
    allowed = 4 * found.stderr + np.abs(found.bias) + 0.02
    assert np.all(np.abs(found.log_prob - exact) < allowed)
    assert np.median(found.stderr) < 0.1


def test_errors_fall_with_the_number_of_paths():
    model = df.models.benes()
    x0 = jnp.zeros(2)
    x = model.exact.sample(jr.key(1), 0.5, x0, shape=(16,))
    few, many = (reference(model.sde, x, 0.5, x0, paths=n, steps=32).stderr for n in (2**12, 2**14))
    # Four times the paths, half of the error; it is itself known to some percent.
    np.testing.assert_allclose(np.median(few / many), 2.0, rtol=0.2)


def test_coefficients_may_depend_on_time():
    def drift(t, x):
        return jnp.cos(t) * jnp.ones(1)

    sde = df.SDE(drift, 0.5, 1)
    found = reference(sde, [[0.4]], 1.0, [0.0], start_time=2.0, paths=2**13, steps=64)
    mean = np.sin(3.0) - np.sin(2.0)
    exact = -0.5 * ((0.4 - mean) / 0.5) ** 2 - np.log(0.5 * np.sqrt(2 * np.pi))
    assert abs(found.log_prob[0] - exact) < 4 * found.stderr[0] + 1e-3


@pytest.mark.parametrize(
    "change, match",
    [
        ({"t": 0.0}, "`t` must be positive"),
        ({"kernel": 1.5}, "`kernel` between 0 and 1"),
        ({"x": [0.0, 0.0]}, "one state a row"),
        ({"x0": [0.0]}, "of length 2"),
        ({"paths": 0}, "`paths` must be at least 1"),
    ],
)
def test_bad_input_is_refused(change, match):
    query = {"x": [[0.0, 0.0]], "t": 1.0, "x0": [0.0, 0.0]} | change
    with pytest.raises(ValueError, match=match):
        reference(df.models.benes().sde, **query)


def test_paths_that_explode_are_named():
    sde = df.SDE(lambda t, x: x**3, 1.0, 1)
    with pytest.raises(ValueError, match="not finite at t=5: 64 steps are too few"):
        reference(sde, [[1.0]], 5.0, [2.0], paths=1, steps=64)


@pytest.mark.parametrize("t", [0.5, 3.0])
def test_the_distance_of_an_exact_density_is_zero_within_its_error(t):
    """At the later time a kernel of an eighth of it is far from Gaussian."""
    model = df.models.benes()
    found = measured_distance(model.exact, t, jnp.zeros(2), sde=model.sde, paths=2**13)
    assert found.value < 3 * found.stderr
    assert found.stderr < 0.05


def test_the_distance_of_a_wrong_density_is_its_total_variation():
    """The density of an Ornstein--Uhlenbeck process, and the SDE of one with another rate."""
    exact = df.models.ornstein_uhlenbeck(1)
    sde = df.SDE(lambda t, x: -2.0 * x, lambda t, x: jnp.ones((1, 1)), 1)
    x0, t = jnp.array([1.0]), 0.3
    found = measured_distance(exact.exact, t, x0, sde=sde, points=2048, paths=2**13)
    grid = np.linspace(-5, 5, 20001)[:, None]
    mean, var = np.exp(-2 * t), (1 - np.exp(-4 * t)) / 4
    other = np.exp(-((grid[:, 0] - mean) ** 2) / (2 * var)) / np.sqrt(2 * np.pi * var)
    q = np.exp(np.asarray(exact.exact.log_prob(grid, t, x0)))
    true = 0.5 * np.sum(np.abs(q - other)) * (grid[1, 0] - grid[0, 0])
    assert true > 0.05
    assert abs(found.value - true) < 3 * found.stderr
