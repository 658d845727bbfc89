"""Laws of learned and composed densities."""

import dataclasses

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import diracflow as df
from helpers import still_density


def bent(density, scale=0.3):
    """The density with parameters of the flow that are not zero, at all times."""
    thetas = density.trajectory.thetas
    noise = scale * np.asarray(jr.normal(jr.key(1), thetas.shape[1:]))
    return type(density)(
        density.ansatz,
        dataclasses.replace(density.trajectory, thetas=thetas + noise),
        density.scope,
        density.provenance,
        density.chart,
    )


def test_a_flow_in_one_dimension_is_inverted_exactly():
    model = df.models.cir(3.0, 0.3, 0.2)
    density = bent(still_density(model))
    law = density.at(0.5 * density.horizon, [0.3])
    q = np.array([1e-4, 0.2, 0.5, 0.9, 0.9999])
    np.testing.assert_allclose(law.cdf(law.ppf(q)), q, rtol=1e-9)
    x = law.ppf(0.3)
    np.testing.assert_allclose(jax.grad(law.cdf)(x), law.pdf(x)[None], rtol=1e-8)
    # Quadrature of the density and of the map agree.
    grid = np.linspace(*np.asarray(law.ppf(np.array([1e-12, 1 - 1e-12])))[:, 0], 20_001)
    mean = np.trapezoid(grid * np.asarray(law.pdf(grid[:, None])), grid)
    np.testing.assert_allclose(law.mean(), [mean], rtol=1e-7)
    assert law.expect(lambda x: x[0]).stderr < 1e-9


def test_long_times_are_composed():
    exact = df.models.ornstein_uhlenbeck(1, rate=1.5, level=0.4, noise=0.8).exact
    density = df.ComposedDensity(exact, 2.0, reach=0.5, starts=df.Normal(0.4, 0.5))
    for t in (0.4, 1.6):  # the base itself, and a mixture over a lattice
        law, truth = density.at(t, [0.1]), exact.at(t, [0.1])
        np.testing.assert_allclose(law.mean(), truth.mean(), rtol=1e-6)
        np.testing.assert_allclose(law.var(), truth.var(), rtol=1e-5)
        np.testing.assert_allclose(law.ppf(0.9), truth.ppf(0.9), rtol=1e-6)
        np.testing.assert_allclose(law.entropy(), truth.entropy(), rtol=1e-5)


def test_derivatives_pass_through_the_flow():
    density = bent(still_density(df.models.benes()), scale=0.05)
    t, x0, step = 0.5 * density.horizon, jnp.array([0.3, -0.2]), 1e-5
    call = lambda x0: density.at(t, x0).expect(lambda x: jnp.exp(x[0] * x[1])).value
    shift = step * np.eye(2)
    difference = [(call(x0 + s) - call(x0 - s)) / (2 * step) for s in shift]
    np.testing.assert_allclose(jax.grad(call)(x0), difference, rtol=1e-6)


def test_components_of_a_flow_along_lines_and_by_quadrature(trained):
    """Two methods that share nothing but the flow: lines of noise, and the marginal density."""
    law = trained.at(0.3, [0.4, -0.3])
    x = np.asarray(law.mean()) + np.asarray(law.std()) * np.array([[-2.0], [0.1], [1.5]])
    value, error = (np.asarray(a) for a in law.cdf_estimate(x))
    for i in range(2):
        truth = np.asarray(law.marginal(i).cdf(x[:, i : i + 1]))
        # A smooth map: both rules converge exponentially, and the cubic along lines to 1e-6.
        np.testing.assert_allclose(value[:, i], truth, rtol=1e-5)
    assert np.all(error < 1e-6)
