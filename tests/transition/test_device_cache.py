"""Objects whose arrays stay on the device."""

import gc

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from diracflow.transition import device_cache


class Line(eqx.Module):
    slope: np.ndarray
    power: int = 1

    def __call__(self, x):
        return self.slope * x**self.power


@device_cache.compiled
def value(line, x):
    return line(x)


def test_values_and_derivatives_are_those_of_the_function():
    line = Line(np.array(3.0), 2)
    assert value(line, 2.0) == 12.0
    assert jax.grad(lambda x: value(line, x))(2.0) == 12.0
    assert jax.jit(lambda x: value(line, x))(2.0) == 12.0


def test_objects_that_are_differentiated_or_mapped_are_not_kept():
    known = len(device_cache._KNOWN)
    slope = lambda s: value(Line(s), 2.0)
    assert jax.grad(slope)(jnp.array(3.0)) == 2.0
    np.testing.assert_array_equal(jax.vmap(slope)(jnp.arange(3.0)), [0.0, 2.0, 4.0])
    assert len(device_cache._KNOWN) == known


def test_each_object_and_precision_has_arrays_of_its_own():
    first, second = Line(np.array(1 / 3)), Line(np.array(0.5))
    assert value(first, 1.0) != value(second, 1.0)
    with jax.enable_x64(False):
        assert value(first, np.float32(1.0)).dtype == jnp.float32
    with jax.enable_x64(True):
        assert value(first, 1.0) == 1 / 3


def test_objects_of_one_structure_share_a_program():
    traced = []

    @device_cache.compiled
    def counted(line, x):
        traced.append(1)
        return line(x)

    assert [counted(Line(np.array(slope)), 2.0) for slope in (1.0, 3.0)] == [2.0, 6.0]
    assert len(traced) == 1
    assert counted(Line(np.array(1.0), 2), 2.0) == 4.0
    assert counted(Line(np.array(1.0), 2.0), 2.0) == 4.0
    assert len(traced) == 3


def test_objects_that_are_gone_leave_nothing_behind():
    line = Line(np.array(7.0))
    value(line, 1.0)
    key = id(line), True  # float64
    assert key in device_cache._KNOWN
    del line
    gc.collect()
    assert key not in device_cache._KNOWN
