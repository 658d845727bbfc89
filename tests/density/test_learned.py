import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import kstest

X0 = np.array([0.4, -0.3])


def grid(reach, n=201):
    axis = np.linspace(-reach, reach, n)
    return np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1), (axis[1] - axis[0]) ** 2


@pytest.mark.parametrize("t", [0.01, 0.1, 0.3])
def test_mass_is_one(trained, t):
    x, area = grid(9 * np.sqrt(t))
    mass = area * np.sum(np.asarray(trained.prob(X0 + x, t, X0)))
    # A sum over 201 points a side of a smooth density nine widths wide; tails are below 1e-15.
    np.testing.assert_allclose(mass, 1.0, atol=1e-8)


@pytest.mark.parametrize("t", [0.05, 0.3])
def test_samples_agree_with_the_density(trained, t, getkey):
    # The distribution function of the first component, by quadrature, makes samples uniform.
    x, area = grid(9 * np.sqrt(t))
    density = np.asarray(trained.prob(X0 + x, t, X0)).sum(axis=1) * area
    distribution = np.cumsum(density) - density / 2
    draws = np.asarray(trained.sample(getkey(), t, X0, (4000,)))[:, 0] - X0[0]
    uniform = np.interp(draws, x[:, 0, 0], distribution)
    # Kolmogorov-Smirnov: a correct sampler fails for one key in ten thousand.
    assert kstest(uniform, "uniform").pvalue > 1e-4


def test_starts_as_a_point_mass(trained, getkey):
    t = 1e-8
    draws = np.asarray(trained.sample(getkey(), t, X0, (100,)))
    assert np.max(np.abs(draws - X0)) < 6 * np.sqrt(t)
    source = trained.source_only()
    x = X0 + np.sqrt(t)
    # The parameters leave the identity linearly in the square root of time.
    np.testing.assert_allclose(trained.log_prob(x, t, X0), source.log_prob(x, t, X0), atol=t**0.5)


def test_every_time_can_be_asked(trained):
    t = np.geomspace(1e-9, trained.horizon, 500)
    values = trained.log_prob(X0, t, X0)
    assert np.all(np.isfinite(values))
    # No jump at a knot: away from the factor 1 / t the value drifts as b^2 t / 2 and the like, at
    # most by order one over the horizon, of which one step here is a twenty-fifth.
    assert np.max(np.abs(np.diff(values + np.log(t)))) < 1 / 25


def test_between_knots_as_good_as_at_knots(trained, benes):
    clocks = trained.trajectory.clocks[5:-1]
    middle = ((clocks[1:] + clocks[:-1]) / 2) ** 2
    x = X0 + 0.1
    error = lambda t: np.abs(trained.log_prob(x, t, X0) - benes.exact.log_prob(x, t, X0))
    # Interpolation adds nothing visible: over four keys the ratio was 0.7 to 0.9.
    assert error(middle).max() < 1.5 * error(clocks**2).max()


def test_gradients_in_x_t_and_x0_against_differences(trained, getkey):
    x, t, step = X0 + 0.2, 0.2, 1e-5
    gradients = jax.grad(trained.log_prob, argnums=(0, 1, 2))(jnp.asarray(x), t, jnp.asarray(X0))
    e = np.array([step, 0.0])
    f = trained.log_prob
    expected = [
        f(x + e, t, X0) - f(x - e, t, X0),
        f(x, t + step, X0) - f(x, t - step, X0),
        f(x, t, X0 + e) - f(x, t, X0 - e),
    ]
    found = [gradients[0][0], gradients[1], gradients[2][0]]
    # Central differences with step 1e-5 on a log-density of scale 1/t.
    np.testing.assert_allclose(found, np.array(expected) / (2 * step), rtol=1e-5, atol=1e-6)


def test_time_derivative_at_the_horizon(trained):
    slopes = [
        jax.grad(trained.log_prob, argnums=1)(X0, trained.horizon * f, X0) for f in (1, 1 - 1e-6)
    ]
    np.testing.assert_allclose(slopes[0], slopes[1], rtol=1e-4)


def test_density_is_a_pytree(trained):
    x, t = jnp.asarray(X0), jnp.array(0.2)
    run = eqx.filter_jit(lambda density, x: density.log_prob(x, t, x))
    np.testing.assert_allclose(run(trained, x), trained.log_prob(x, t, x), rtol=1e-12)
    assert jax.tree.leaves(trained)


def test_stages_end_at_the_sample(trained, getkey):
    noise = jax.random.normal(getkey(), (5, 2))
    stages = trained.stages(noise, 0.2, X0)
    assert stages.shape == (5, 5, 2)  # a source and four layers
    expected = jax.vmap(
        lambda n: trained._from_noise(trained._at_time(jnp.array(0.2)), n, jnp.asarray(X0))
    )(noise)
    np.testing.assert_allclose(stages[-1], expected, rtol=1e-12)


def test_time_beyond_the_horizon_says_what_to_do(trained):
    with pytest.raises(ValueError, match=r"\(0, 0.3\].*got 0.5.*longer horizon"):
        trained.log_prob(X0, 0.5, X0)
