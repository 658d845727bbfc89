import jax.numpy as jnp
import numpy as np
import pytest

import diracflow as df
from diracflow.evaluate.spectral_grid import SpectralGrid, transition_densities


@pytest.mark.parametrize("dim", [1, 2])
def test_it_agrees_with_exact_densities(dim):
    model = df.models.ornstein_uhlenbeck(dim)
    points = 101 if dim == 1 else 81
    grid = SpectralGrid([-5.0] * dim, [5.0] * dim, points)
    x0 = np.full((1, dim), 0.4)
    found = transition_densities(model.sde, grid, x0, [0.5, 1.0])
    for p, t in zip(found, (0.5, 1.0), strict=True):
        exact = np.asarray(model.exact.prob(grid.nodes(), t, x0[0]))
        # Waves up to half the highest wave number are exact to 1e-8; the density has no others.
        np.testing.assert_allclose(p[0], exact, atol=1e-6)
        np.testing.assert_allclose(p[0].sum() * grid.volume, 1.0, rtol=1e-6)


def test_noise_on_the_velocity_only():
    model = df.models.linear_langevin()
    grid = SpectralGrid([-5.0, -5.0], [5.0, 5.0], 91)
    x0 = np.array([[0.6, -0.4]])
    found = transition_densities(model.sde, grid, x0, [2.0])[0, 0]
    exact = np.asarray(model.exact.prob(grid.nodes(), 2.0, x0[0]))
    # The error is at most 9e-5 where the density is 0.3. With drifts that vanish at the faces it
    # was 2e-2.
    assert np.sum((found - exact) ** 2) / np.sum(exact**2) < 1e-5


def test_noise_that_depends_on_the_state():
    # The rate of the mean is the mean drift; that of the second moment contains the noise.
    sde = df.SDE(lambda t, x: -x, lambda t, x: (1 + 0.3 * jnp.sin(x))[:, None], 1)
    grid = SpectralGrid([-7.0], [7.0], 151)
    x, step = grid.axes()[0], 1e-3
    times = [0.5 - step, 0.5, 0.5 + step]
    before, now, after = transition_densities(sde, grid, np.array([[0.5]]), times)[:, 0]
    rate = (after - before) * grid.volume / (2 * step)
    # Central differences of smooth moments have an error of 1e-6 times a third derivative.
    np.testing.assert_allclose(rate @ x, -(now @ x) * grid.volume, atol=1e-5)
    expected = now @ ((1 + 0.3 * np.sin(x)) ** 2 - 2 * x**2) * grid.volume
    np.testing.assert_allclose(rate @ x**2, expected, atol=1e-5)


def test_even_numbers_of_points_are_refused():
    with pytest.raises(ValueError, match="`points` must be odd"):
        SpectralGrid([-1.0], [1.0], 64)
