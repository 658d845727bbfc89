"""Composition of exact densities, whose density at the longer time is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import diracflow as df


def test_an_exact_density_is_composed_over_a_lattice():
    model = df.models.ornstein_uhlenbeck(1, rate=0.8, level=0.3, noise=0.6)
    density = df.ComposedDensity(model.exact, 3.0, reach=1.0, starts=model.starts)
    assert density.lattice is not None
    assert (density.horizon, density.reach, density.legs) == (3.0, 1.0, 3)
    x, x0 = np.linspace(-3.0, 3.0, 301)[:, None], np.array([1.2])
    for t in (2.0, 2.7):
        p, q = (np.asarray(law.prob(x, t, x0)) for law in (density, model.exact))
        # Spacings of 1.25 standard deviations, 7e-6; products of densities are narrower.
        assert 0.5 * np.sum(np.abs(p - q)) * 0.02 < 4e-4
    np.testing.assert_array_equal(density.log_prob(x, 0.7, x0), model.exact.log_prob(x, 0.7, x0))


def test_an_exact_density_is_composed_in_three_dimensions(getkey):
    model = df.models.ornstein_uhlenbeck(3, rate=0.8, level=0.3, noise=0.6)
    density = df.ComposedDensity(model.exact, 2.0, reach=1.0, starts=model.starts)
    assert density.lattice is None
    x0 = jnp.array([0.5, -0.2, 0.1])
    x = model.exact.sample(getkey(), 2.0, x0, (256,))
    errors = density.log_prob(x, 2.0, x0) - model.exact.log_prob(x, 2.0, x0)
    # Independent points would err by the standard deviation of a density, about one, over sixteen;
    # 256 quasi-random ones by less.
    assert np.sqrt(np.mean(np.square(errors))) < 0.06
    draws = density.sample(getkey(), 2.0, x0, (4000,))
    mean = 0.3 + (np.asarray(x0) - 0.3) * np.exp(-1.6)
    std = np.sqrt(0.36 / 1.6 * (1 - np.exp(-3.2)))
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=5 * std / np.sqrt(4000))


def test_what_an_exact_density_lacks_is_named():
    density = df.ComposedDensity(df.models.brownian(1).exact, 2.0, reach=1.0)
    for use in (
        lambda: density.certificate(jax.random.key(0), 1.5, [0.0]),
        lambda: density.coverage([0.0]),
        lambda: density.status,
        lambda: density.save("model.dflow"),
    ):
        with pytest.raises(AttributeError, match="which has no `.*; learned densities do"):
            use()


def test_bad_compositions_are_refused():
    exact = df.models.brownian(1).exact
    for wrong in ({}, {"reach": 0.0}, {"reach": np.nan}):
        with pytest.raises(ValueError, match="`reach`"):
            df.ComposedDensity(exact, 2.0, **wrong)
    with pytest.raises(ValueError, match="depends on the start time"):
        df.ComposedDensity(df.models.seasonal().exact, 2.0, reach=1.0)
