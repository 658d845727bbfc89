"""Third cumulants of each start, and the map to a law that has them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from diracflow.equation.skew_map import from_normal, packed, shape_size, to_normal, unpacked
from diracflow.sde.heun import heun_paths
from diracflow.source.cumulants import CumulantSource, fifth_degree_rule
from diracflow.source.moments import MomentSource, graded_basis
from helpers import frame_of


def random_shape(dim, size, seed=0):
    return size * jr.normal(jr.key(seed), (shape_size(dim),))


skewed = jax.jit(jax.vmap(from_normal, (0, None)))
straightened = jax.jit(jax.vmap(to_normal, (0, None)))
jacobians = jax.jit(jax.vmap(jax.jacfwd(lambda y, shape: to_normal(y, shape)[0]), (0, None)))


@pytest.mark.parametrize("size", [0.0, 1e-9, 0.1, 2.0])
def test_the_skew_map_is_inverted_with_its_determinant(size):
    z, shape = jr.normal(jr.key(1), (200, 3)) * 3, random_shape(3, size)
    zeta = skewed(z, shape)
    back, log_det = straightened(zeta, shape)
    np.testing.assert_allclose(back, z, rtol=0, atol=1e-9)
    jacobian = jacobians(zeta, shape)
    np.testing.assert_allclose(log_det, np.linalg.slogdet(jacobian)[1], rtol=0, atol=1e-8)


def test_small_third_cumulants_of_the_map_are_those_asked_for():
    """The error is of the third order in the cumulants; that of the covariance of the second."""
    dim, z = 3, jr.normal(jr.key(0), (2**20, 3))
    z = jnp.concatenate([z, -z])
    shape = random_shape(dim, 0.05)
    zeta = skewed(z, shape)
    moments = jnp.einsum("ni,nj,nk->ijk", zeta, zeta, zeta) / len(z)
    # The standard error of a third moment is at most sqrt(15 / 2^21).
    np.testing.assert_allclose(moments, unpacked(shape, dim), rtol=0, atol=0.012)
    np.testing.assert_allclose(packed(unpacked(shape, dim)), shape)


@pytest.mark.parametrize("dim", [1, 2, 6])
def test_the_rule_integrates_degree_five(dim):
    z, w = fifth_degree_rule(dim)
    np.testing.assert_allclose([w.sum(), w @ z[:, 0] ** 2, w @ z[:, 0] ** 4], [1, 1, 3])
    if dim > 1:
        np.testing.assert_allclose(
            [w @ (z[:, 0] * z[:, 1]) ** 2, 1 + w @ (z[:, 0] * z[:, 1])], [1, 1]
        )


def test_third_cumulants_of_a_square_root_process_are_exact():
    """Its moments satisfy closed equations."""
    rate, level, sigma, x0, t = 1.0, 2.0, 0.4, 1.5, 0.8
    sde = df.SDE(lambda t, x: rate * (level - x), lambda t, x: sigma * jnp.sqrt(x)[:, None], 1)
    frame = frame_of(CumulantSource(sde, steps=64), jnp.asarray(t), jnp.array([x0]))
    # A non-central chi-squared law: scale c, degrees n, non-centrality l.
    c = sigma**2 * (1 - np.exp(-rate * t)) / (4 * rate)
    n, lam = 4 * rate * level / sigma**2, x0 * np.exp(-rate * t) / c
    variance, third = 2 * c**2 * (n + 2 * lam), 8 * c**3 * (n + 3 * lam)
    np.testing.assert_allclose(frame.factor[0, 0] ** 2, variance, rtol=1e-5)
    np.testing.assert_allclose(frame.shape[0], third / variance**1.5, rtol=1e-3)


def lorenz():
    def drift(t, x):
        a, b, c = x
        return jnp.stack([10 * (b - a), a * (28 - c) - b, a * b - 8 / 3 * c])

    return df.SDE(drift, 2.0 * jnp.ones(3), 3)


def test_the_source_is_nearer_to_simulated_paths_than_a_gaussian():
    """Both have moments of the same closure; the mean log-likelihood differs by the skewness."""
    sde, x0, t = lorenz(), jnp.array([4.0, 5.0, 24.0]), 0.25
    [ends] = heun_paths(sde, 0.0, jr.key(0), jnp.tile(x0, (16384, 1)), jnp.array([t]), 256)
    values, plain = (
        jax.jit(jax.vmap(lambda x, s=s: s.log_prob(x, jnp.asarray(t), x0)))(ends)
        for s in (CumulantSource(sde, steps=32), MomentSource(sde, steps=32))
    )
    gain = np.asarray(values - plain)
    assert gain.mean() > 5 * gain.std() / np.sqrt(len(gain))


def test_noise_of_a_rotated_degenerate_process_gives_the_same_law():
    """In rotated coordinates covariances refer to other axes; the law must not."""
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(2, 2)))[0]

    def drift(t, x):
        q, v = x
        return jnp.stack([v, -q - 0.5 * q**2 - 0.3 * v])

    column = jnp.array([[0.0], [0.4]])
    plain = df.SDE(drift, lambda t, x: column, 2)
    turned = df.SDE(lambda t, y: turn @ drift(t, turn.T @ y), lambda t, y: turn @ column, 2)
    x0, x, t = jnp.array([0.5, -0.2]), jnp.array([0.3, -0.5]), jnp.asarray(1.0)
    basis = graded_basis(turned, 0.0, turn @ np.asarray(x0))
    source = CumulantSource(turned, 0.0, basis, 32)
    first = frame_of(CumulantSource(plain, steps=32), t, x0)
    second = frame_of(source, t, turn @ x0)
    # Invariants: the squared length of the tensor of third cumulants.
    lengths = [jnp.sum(unpacked(frame.shape, 2) ** 2) for frame in (first, second)]
    np.testing.assert_allclose(lengths[1], lengths[0], rtol=1e-6)
    np.testing.assert_allclose(turn.T @ second.mean, first.mean, rtol=1e-9)
    assert np.isfinite(eqx.filter_jit(source.log_prob)(turn @ x, t, turn @ x0))
