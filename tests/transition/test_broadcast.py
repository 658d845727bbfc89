import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diracflow.transition import broadcast

SHAPES = [
    ((), (), ()),
    ((), (5,), ()),
    ((), (5,), (5,)),
    ((3,), (3,), ()),
    ((3, 1), (5,), ()),
    ((3, 1), (1, 5), (3, 1)),
    ((4,), (3, 1), (3, 4)),
    ((2, 1, 3), (4, 1), ()),
    ((1, 1), (2,), ()),
    ((), (0,), ()),
    ((0,), (0,), ()),
]


def value(state, x, x0):
    return state * jnp.sum(x) - x0[0]


@pytest.mark.parametrize("chunk", [2, broadcast.CHUNK])
@pytest.mark.parametrize("t_shape, x_shape, x0_shape", SHAPES)
def test_agrees_with_numpy_broadcasting(t_shape, x_shape, x0_shape, chunk, getkey, monkeypatch):
    monkeypatch.setattr(broadcast, "CHUNK", chunk)
    t = jax.random.normal(getkey(), t_shape)
    x = jax.random.normal(getkey(), (*x_shape, 2))
    x0 = jax.random.normal(getkey(), (*x0_shape, 2))
    found = broadcast.map_points(jnp.sin, value, t, x, x0)
    t, x, x0 = np.asarray(t), np.asarray(x), np.asarray(x0)
    np.testing.assert_allclose(found, np.sin(t) * x.sum(-1) - x0[..., 0], rtol=1e-12)


def test_vector_values_keep_their_axis_last(getkey):
    t, x = jnp.array([[1.0], [2.0], [3.0]]), jax.random.normal(getkey(), (4, 2))
    found = broadcast.map_points(lambda t: t, lambda t, x: t * x, t, x)
    np.testing.assert_allclose(found, np.asarray(t)[..., None] * np.asarray(x), rtol=1e-15)


def test_time_is_prepared_once_for_all_points():
    # What depends on time alone (seven numbers) must not acquire the axis of the eleven points.
    def run(x):
        return broadcast.map_points(
            lambda t: jnp.sin(jnp.tile(t, 7)), lambda s, x: s @ s * x[0], jnp.ones(()), x
        )

    program = str(jax.make_jaxpr(run)(jnp.zeros((11, 2))))
    assert "[7] = sin" in program
