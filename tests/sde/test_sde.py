import jax.numpy as jnp
import numpy as np
import pytest

import diracflow as df
from diracflow.sde.coefficient_checks import check_coefficients, is_degenerate_at, trial_starts


def zero(t, x):
    return jnp.zeros_like(x)


def unit(t, x):
    return jnp.eye(x.shape[0])


BAD_CONSTRUCTIONS = {
    "drift too long": (lambda t, x: jnp.zeros(3), unit, 2, r"must return shape \(2,\).*\(3,\)"),
    "drift a scalar": (lambda t, x: x[0], unit, 2, r"must return shape \(2,\)"),
    "diffusion a longer vector": (zero, lambda t, x: jnp.ones(3), 2, r"\(2, m\).*\(3,\).*vector"),
    "diffusion wrong rows": (zero, lambda t, x: jnp.eye(3), 2, r"\(2, m\).*\(3, 3\)"),
    "no noise": (zero, lambda t, x: jnp.zeros((2, 0)), 2, r"\(2, m\)"),
    "one argument": (lambda x: x, unit, 2, "could not be traced"),
    "not traceable": (lambda t, x: np.sin(float(x[0])), unit, 2, "jax.numpy"),
    "complex": (lambda t, x: 1j * x, unit, 2, "real numbers"),
    "not a function": (3.0, unit, 2, "must be a function"),
    "dim zero": (zero, unit, 0, "positive integer"),
    "dim a float": (zero, unit, 2.0, "positive integer"),
}


@pytest.mark.parametrize(
    "drift, diffusion, dim, message", BAD_CONSTRUCTIONS.values(), ids=BAD_CONSTRUCTIONS
)
def test_bad_constructions_are_refused(drift, diffusion, dim, message):
    with pytest.raises(ValueError, match=message):
        df.SDE(drift, diffusion, dim)


def test_noise_columns_are_counted():
    assert df.SDE(zero, lambda t, x: jnp.ones((2, 5)), 2).noise_dim == 5


def test_integer_coefficients_become_floats():
    sde = df.SDE(lambda t, x: jnp.ones(2, dtype=int), lambda t, x: jnp.eye(2, dtype=int), 2)
    assert sde.drift(jnp.array(0.0), jnp.zeros(2)).dtype == jnp.float64


CONSTANT_NOISE = {
    "number": (0.7, [[0.7]]),
    "vector": ([0.7, 0.2], [[0.7, 0.0], [0.0, 0.2]]),
    "matrix": ([[0.7, 0.1, 0.0], [0.0, 0.2, 0.3]], [[0.7, 0.1, 0.0], [0.0, 0.2, 0.3]]),
}


@pytest.mark.parametrize("diffusion, matrix", CONSTANT_NOISE.values(), ids=CONSTANT_NOISE)
def test_constant_noise_defines_the_dimension(diffusion, matrix):
    sde = df.SDE(lambda t, x: -x, diffusion)
    assert (sde.dim, sde.noise_dim) == np.shape(matrix)
    for equation in (sde, df.SDE(lambda t, x: -x, diffusion, sde.dim)):
        np.testing.assert_array_equal(equation.diffusion(0.0, jnp.zeros(sde.dim)), matrix)


def test_constant_noise_of_a_family():
    family = df.SDE(lambda t, x, p: -p["rate"] * x, 0.7, params=("rate",))
    sigma = family.at({"rate": 2.0}).diffusion(0.0, jnp.zeros(1))
    np.testing.assert_array_equal(sigma, [[0.7]])


def test_scalar_noise_in_one_dimension():
    sde = df.SDE(lambda t, x: -x, lambda t, x: 0.5 + x[0] ** 2, dim=1)
    assert sde.noise_dim == 1
    np.testing.assert_array_equal(sde.diffusion(0.0, jnp.ones(1)), [[1.5]])
    np.testing.assert_array_equal(sde.covariance(0.0, jnp.ones(1)), [[2.25]])


def test_vectors_are_diagonals():
    sde = df.SDE(lambda t, x: -x, lambda t, x: 1 + x**2, dim=2)
    assert sde.noise_dim == 2
    np.testing.assert_array_equal(sde.diffusion(0.0, jnp.array([1.0, 2.0])), [[2, 0], [0, 5]])


def test_coefficients_of_one_component_may_be_scalars():
    sde = df.SDE(lambda t, x: -x[0], lambda t, x: jnp.sqrt(x), dim=1)
    np.testing.assert_array_equal(sde.drift(0.0, jnp.array([4.0])), [-4.0])
    np.testing.assert_array_equal(sde.diffusion(0.0, jnp.array([4.0])), [[2.0]])


BAD_VALUES = {
    "nan drift": (lambda t, x: jnp.sqrt(x), unit, r"`drift` is not finite at t=0, x=\[-"),
    "infinite noise": (zero, lambda t, x: jnp.eye(2) / (x[0] > 0), "`diffusion` is not finite"),
    "singular noise": (zero, lambda t, x: jnp.array([[1.0], [0.0]]), "x=.*reaches 1 of 2"),
    "rank one": (zero, lambda t, x: jnp.ones((2, 2)), "reaches 1 of 2"),
    "nearly rank one": (zero, lambda t, x: jnp.array([[1.0, 1.0], [1.0, 1 + 1e-9]]), "reaches 1"),
    # The velocity never acts on the position: Kalman's condition fails.
    "cut off": (lambda t, x: -x, lambda t, x: jnp.array([[0.0], [1.0]]), "Add a little noise"),
    "no noise": (lambda t, x: -x, lambda t, x: jnp.zeros((2, 1)), "reaches 0 of 2"),
    "late nan": (lambda t, x: x * jnp.sqrt(0.5 - t), unit, "not finite at t=1"),
}


@pytest.mark.parametrize("drift, diffusion, message", BAD_VALUES.values(), ids=BAD_VALUES)
def test_bad_values_name_the_point(drift, diffusion, message):
    sde = df.SDE(drift, diffusion, 2)
    with pytest.raises(ValueError, match=message):
        check_coefficients(sde, df.Normal(0.0, 1.0).expand(2), 0.0, 1.0)


def test_noise_may_reach_components_through_the_drift():
    starts = df.Normal(0.0, 1.0).expand(2)
    for model in (df.models.langevin(), df.models.duffing(), df.models.linear_langevin()):
        check_coefficients(model.sde, starts, 0.0, 1.0)
        assert is_degenerate_at(model.sde, 0.0, trial_starts(starts))
    assert not is_degenerate_at(df.models.van_der_pol().sde, 0.0, trial_starts(starts))
    # Scales of their own do no harm: a heavy particle with weak noise.
    heavy = df.models.linear_langevin(stiffness=1e-6, friction=1e-6, noise=1e-6)
    check_coefficients(heavy.sde, starts, 0.0, 1.0)
