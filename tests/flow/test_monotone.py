import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from diracflow.flow.monotone import Bumps, MonotoneCoupling, bounded_below, outputs, preimage
from diracflow.flow.networks import SharedNetwork


def bumps_of(key, k=4, gamma=0.9, sharp=1.0):
    """Three functions, with weights down to the steepest descent allowed."""
    keys = jr.split(key, 3)
    weight = gamma / k * jr.uniform(keys[0], (3, k), minval=-1.0, maxval=3.0)
    steepness = jnp.exp(sharp * jr.normal(keys[1], (3, k)))
    return Bumps(weight, steepness, 2 * jr.normal(keys[2], (3, k)))


@pytest.mark.parametrize("sharp", [0.5, 2.0, 4.0])
@pytest.mark.parametrize("size", [1.0, 100.0])
def test_preimage_inverts(sharp, size, getkey):
    bumps, v = bumps_of(getkey(), sharp=sharp), size * jr.normal(getkey(), (200, 3))
    back = jax.vmap(lambda v: preimage(bumps(v)[0], bumps))(v)
    # The iteration stops at eight roundings of y; a slope of 0.1 magnifies them tenfold.
    np.testing.assert_allclose(back, v, rtol=1e-12, atol=1e-13 * size)


def test_slopes_stay_positive(getkey):
    bumps = bumps_of(getkey(), sharp=3.0)
    _, slope = jax.vmap(bumps)(4 * jr.normal(getkey(), (500, 3)))
    assert np.all(slope >= 0.1 - 1e-12)


@pytest.mark.parametrize("size", [0.1, 1.0, 100.0])
def test_weights_share_their_bound(size, getkey):
    raw = size * jr.normal(getkey(), (1000, 4))
    weight = bounded_below(raw, 0.9)
    assert np.all(np.sign(weight) == np.sign(raw))
    assert np.all(np.sum(np.maximum(-weight, 0), axis=1) < 0.9)
    # One alone may come close to the bound, at the rate 1 / raw: the others' smoothed negative
    # parts and the bound itself add 1.2 to the denominator.
    large = 100 * size
    alone = bounded_below(jnp.array([[-large, 0.0, 0.0, 0.0]]), 0.9)
    assert alone[0, 0] < -0.9 * large / (large + 1.3)


def test_derivatives_of_the_preimage(getkey):
    # Of every order, in the argument and in all coefficients: the derivative of
    # bumps(preimage(y)) = y is the identity in y and zero in the coefficients.
    bumps, y = bumps_of(getkey()), jr.normal(getkey(), (3,))

    def round_trip(y, bumps):
        return bumps(preimage(y, bumps))[0]

    np.testing.assert_allclose(jax.jit(jax.jacfwd(round_trip))(y, bumps), np.eye(3), atol=1e-10)
    by_y, by_bumps = jax.jit(jax.jacrev(round_trip, argnums=(0, 1)))(y, bumps)
    np.testing.assert_allclose(by_y, np.eye(3), atol=1e-10)
    for slopes in jax.tree.leaves(by_bumps):
        np.testing.assert_allclose(slopes, 0, atol=1e-10)
    np.testing.assert_allclose(jax.jit(jax.hessian(round_trip))(y, bumps), 0, atol=1e-9)


def test_moves_without_idle_components(getkey):
    network = SharedNetwork(0, 1, 2, outputs(3), hidden=4, key=getkey())
    layer = MonotoneCoupling(network, bumps=3, gamma=0.9)
    leaves, structure = jax.tree.flatten(layer)
    leaves = [leaf + 0.5 * jr.normal(getkey(), leaf.shape) for leaf in leaves]
    layer, v, context = jax.tree.unflatten(structure, leaves), jnp.ones(1), jnp.ones(2)
    z, log_det = layer.to_source(v, jnp.zeros(0), context)
    slope = jax.grad(lambda v: layer.to_source(v, jnp.zeros(0), context)[0][0])(v)
    np.testing.assert_allclose(log_det, jnp.log(slope[0]), rtol=1e-12)
    np.testing.assert_allclose(layer.from_source(z, jnp.zeros(0), context), v, rtol=1e-12)
