import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from diracflow.equation.moving_frame import Basis
from diracflow.planning.settings import settings_for
from diracflow.planning.size_rules import basis_rule, require_separable, start_jacobians
from diracflow.source.separation import RotatedSource, couplings, rotated_sde, separating_basis
from helpers import problem_for, problem_of, shaped_for


def jacobians_of(model):
    return start_jacobians(problem_of(model))


def oblique(dim, seed=0):
    """Axes that are neither orthogonal nor of one length."""
    rng = np.random.default_rng(seed)
    return Basis(np.eye(dim) + 0.4 * rng.normal(size=(dim, dim)))


@pytest.mark.parametrize("dim", [2, 3, 6])
def test_rotated_independent_components_are_found(dim):
    # The drift of Beneš's process is R tanh(R^T x): along the columns of R nothing interacts.
    model = df.models.benes(dim=dim)
    basis, left = separating_basis(jacobians_of(model))
    rotation = np.asarray(model.sde.diffusion(0.0, jnp.zeros(dim)))
    match = np.abs(basis.inverse @ rotation)
    # A permutation, to the accuracy at which rotations of 1e-10 end the search.
    np.testing.assert_allclose(np.sort(match, axis=1)[:, :-1], 0, atol=1e-8)
    np.testing.assert_allclose(match.max(axis=1), 1, atol=1e-8)
    assert left < 1e-15


def test_noise_is_of_unit_size_along_the_axes():
    columns = oblique(3).columns
    sde = df.SDE(lambda t, x: jnp.sin(x), lambda t, x: jnp.asarray(columns), 3)
    basis, _ = separating_basis(start_jacobians(problem_for(sde, df.Normal(0.0, 1.0))))
    along = basis.inverse @ columns
    np.testing.assert_allclose(along @ along.T, np.eye(3), atol=1e-12)


def test_a_linear_drift_leaves_nothing_to_separate():
    model = df.models.ornstein_uhlenbeck(3, rate=np.eye(3) + 0.3)
    assert separating_basis(jacobians_of(model))[1] == 1.0


def test_neighbours_of_a_chain_are_coupled_and_no_others():
    found = couplings(jacobians_of(df.models.double_well_chain(dim=5)), None, 1.0)
    distance = np.abs(np.subtract.outer(range(5), range(5)))
    np.testing.assert_array_equal(found > 0, distance == 1)
    # On all of them alike, and less than each site does to itself.
    np.testing.assert_array_equal(found[distance == 1], found[0, 1])
    assert 0.1 < found[0, 1] < 1


def test_noise_couples_too():
    # The noise of the second component depends on the first alone; the drift is constant.
    found = couplings(jacobians_of(df.models.sheared(dim=4)), None, 1.0)
    assert found[0, 1] == found[1, 0] == 0.5  # the mean of what either does to the other
    assert found.sum() == 1.0


def test_separated_components_are_not_coupled():
    at = jacobians_of(df.models.benes(dim=4))
    basis, _ = separating_basis(at)
    np.testing.assert_array_equal(couplings(at, basis, 1.0), 0)
    assert np.all(couplings(at, None, 1.0)[~np.eye(4, dtype=bool)] > 0.01)


@pytest.mark.parametrize("source", [df.EulerSource, df.MomentSource])
def test_a_rotated_source_is_the_source_of_the_rotated_equation(source, getkey):
    sde, basis = df.models.benes(dim=3).sde, oblique(3)
    inner = source(rotated_sde(sde, basis), 0.0)
    outer, tau = RotatedSource(sde, basis, inner), jnp.array(0.4)
    x0, noise = jr.normal(getkey(), (2, 3))
    y0 = jnp.asarray(basis.inverse) @ x0
    x = eqx.filter_jit(outer.from_noise)(noise, tau, x0)
    y = eqx.filter_jit(inner.from_noise)(noise, tau, y0)
    np.testing.assert_allclose(x, basis.columns @ y, rtol=1e-12)
    expected = eqx.filter_jit(inner.log_prob)(y, tau, y0) - np.linalg.slogdet(basis.columns)[1]
    found = eqx.filter_jit(outer.log_prob)(x, tau, x0)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    # And it is a density: the volume is that of the map from noise.
    log_det = np.linalg.slogdet(jax.jit(jax.jacfwd(outer.from_noise))(noise, tau, x0))[1]
    normal = -0.5 * noise @ noise - 1.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(found, normal - log_det, rtol=1e-12)


def test_parameters_reach_the_rotated_equation():
    family = df.models.ornstein_uhlenbeck_family()
    rotated = rotated_sde(family.sde, Basis(np.array([[2.0]])))
    params = {"rate": 2.0, "level": 0.5, "noise": 0.3}
    inside, plain = rotated.at(params), family.sde.at(params)
    drift, sigma = inside.drift(0.0, jnp.array([0.1])), inside.diffusion(0.0, jnp.array([0.1]))
    np.testing.assert_allclose(2 * drift, plain.drift(0.0, jnp.array([0.2])))
    np.testing.assert_allclose(2 * sigma, plain.diffusion(0.0, jnp.array([0.2])))


@pytest.mark.parametrize(
    "model, expected",
    [
        (df.models.benes(dim=3), "separated"),
        (df.models.benes(angle=0.0, dim=3), "axes"),  # they are the right ones already
        (df.models.benes(dim=2), "axes"),
        (df.models.double_well_chain(dim=4), "axes"),
        (df.models.ornstein_uhlenbeck(3), "axes"),
        (df.models.sheared(dim=4), "axes"),
    ],
)
def test_the_rule_turns_where_it_separates(model, expected):
    assert basis_rule(problem_of(model), settings_for("quick")).value == expected


def test_the_path_as_context_keeps_the_axes():
    settings = settings_for("quick", context="path")
    assert basis_rule(problem_of(df.models.benes(dim=3)), settings).value == "axes"


def test_a_basis_that_was_asked_for_is_kept():
    problem = problem_of(df.models.benes(dim=3))
    for basis in ("axes", "separated"):
        assert shaped_for(problem, basis=basis).basis == basis


def integrators():
    """Noise reaches the third component, and through it the others."""

    def drift(t, x):
        return jnp.stack([x[1], x[2], -jnp.sin(x[0] + x[1])])

    return df.SDE(drift, lambda t, x: jnp.array([[0.0], [0.0], [1.0]]), 3)


def test_components_without_noise_are_coupled_by_the_drift():
    found = couplings(start_jacobians(problem_for(integrators(), df.Normal(0.0, 1.0))), None, 1.0)
    assert np.all(np.isfinite(found))
    assert found[0, 1] > 0
    assert found[1, 2] > 0


def test_jacobians_without_value_couple_nothing():
    root = df.SDE(lambda t, x: jnp.sqrt(x - 100), lambda t, x: jnp.eye(3), 3)
    at = start_jacobians(problem_for(root, df.Normal(0.0, 1.0)))
    np.testing.assert_array_equal(couplings(at, None, 1.0), 0)
    assert separating_basis(at)[1] == 1.0


def test_degenerate_noise_refuses_a_basis():
    problem = problem_for(integrators(), df.Normal(0.0, 1.0))
    settings = settings_for("quick", basis="separated")
    with pytest.raises(ValueError, match=r'needs noise in every component.*`basis="axes"`'):
        require_separable(problem, settings)


def test_degenerate_noise_keeps_the_axes():
    problem = problem_for(integrators(), df.Normal(0.0, 1.0))
    assert basis_rule(problem, settings_for("quick")).value == "axes"
