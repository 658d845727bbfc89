import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from diracflow.flow.networks import InputSelection, OwnNetworks
from diracflow.planning.ansatz_builder import (
    Axes,
    build_flow,
    input_selection,
    orders,
    parameter_count,
)
from diracflow.planning.settings import settings_for
from diracflow.planning.size_rules import networks_rule
from helpers import ansatz_for, problem_for, problem_of

CHAIN = np.eye(6, k=1) + np.eye(6, k=-1)


def ansatz_of(model, **changes):
    return ansatz_for(problem_for(model.sde, model.starts), source="euler", **changes)


def moved(ansatz, key, size=0.2):
    return ansatz.at(ansatz.theta + size * jr.normal(key, ansatz.theta.shape))


def test_components_look_at_those_that_act_on_them():
    idle, others = np.array([0, 2, 4]), np.array([1, 3, 5])
    seen = input_selection(idle, others, CHAIN, 7, 7)  # six starts and a parameter
    # Neighbours first: of 1 they are 0 and 2, at the places 0 and 1 of the idle ones.
    np.testing.assert_array_equal(seen.partners, [[0, 1, 2], [1, 2, 0], [2, 0, 1]])
    # Behind the partners: the own start, the partners' starts, the parameter.
    np.testing.assert_array_equal(seen.inputs[0], [0, 1, 2, 3 + 1, 3 + 0, 3 + 2, 3 + 4, 3 + 6])


def test_means_are_looked_at_like_starts():
    idle, others = np.array([0]), np.array([1])
    seen = input_selection(idle, others, np.ones((2, 2)), 2, 4)
    np.testing.assert_array_equal(seen.inputs, [[0, 1 + 1, 1 + 0, 1 + 2 + 1, 1 + 2 + 0]])


def test_a_component_depends_on_what_it_looks_at_and_on_shared_features_only(getkey):
    # Three idle components and a context of length two.
    seen = InputSelection(np.array([[1], [0]]), np.array([[1, 3], [0, 4]]))
    networks = OwnNetworks(3, 2, seen, 5, hidden=4, key=getkey())
    arrays, rest = eqx.partition(networks, eqx.is_inexact_array)
    leaves, tree = jax.tree.flatten(arrays)
    keys = jr.split(getkey(), len(leaves))
    leaves = [leaf + jr.normal(k, leaf.shape) for leaf, k in zip(leaves, keys, strict=True)]
    networks = eqx.combine(jax.tree.unflatten(tree, leaves), rest)
    blind = eqx.tree_at(lambda n: n.lift.weight, networks, jnp.zeros_like(networks.lift.weight))
    both = jr.normal(getkey(), (5,))

    def outputs(networks, both):
        return networks(both[:3], both[3:])

    slopes = np.asarray(jax.jacfwd(outputs, argnums=1)(blind, both))
    shift = 1  # which has a linear path from all idle components
    others = np.delete(slopes, shift, axis=1)
    for component, inputs in enumerate(seen.inputs):
        unseen = np.setdiff1d(np.arange(5), inputs)
        np.testing.assert_array_equal(others[component][:, unseen], 0)
        assert np.all(others[component][:, inputs] != 0)
    assert np.all(slopes[:, shift, :3] != 0)
    assert np.all(np.asarray(jax.jacfwd(outputs, argnums=1)(networks, both)) != 0)


# In more dimensions they are among the flows of `test_coupling_flow`.
@pytest.mark.parametrize("dim", [2])
def test_own_networks_start_at_the_identity_and_stay_invertible(dim, getkey):
    start = ansatz_of(df.models.benes(dim=dim), networks="own")
    x, x0 = jr.normal(getkey(), (2, dim))
    image, log_det = start.flow.to_source(x, x0)
    np.testing.assert_array_equal(image, x)
    assert log_det == 0
    flow = moved(start, getkey()).flow
    z, log_det = flow.to_source(x, x0)
    # Newton's iteration ends at eight roundings; slopes of a tenth and four layers magnify them.
    np.testing.assert_allclose(flow.from_source(z, x0), x, atol=1e-10)
    expected = jnp.linalg.slogdet(jax.jacfwd(lambda y: flow.to_source(y, x0)[0])(x))[1]
    np.testing.assert_allclose(log_det, expected, atol=1e-12)


def test_the_first_split_parts_all_neighbours_of_a_chain():
    first, second = orders(6, settings_for("quick", layers=4), CHAIN)
    assert {frozenset(first[:3]), frozenset(first[3:])} == {
        frozenset({0, 2, 4}),
        frozenset({1, 3, 5}),
    }
    # What acts on each other comes apart again before what does not.
    assert set(second[:3]) in (set(first[:3]), set(first[3:]))


def test_splits_part_all_components_if_none_act_on_each_other():
    first, second = orders(4, settings_for("quick", layers=4), np.zeros((4, 4)))
    sides = [np.argsort(order) < 2 for order in (first, second)]
    apart = np.logical_or(*(side[:, None] != side[None, :] for side in sides))
    assert np.all(apart | np.eye(4, dtype=bool))


def test_parameters_grow_with_the_dimension_and_not_with_its_square():
    def parameters(dim, networks):
        settings = settings_for("quick", networks=networks, layers=4, hidden=4)
        axes = Axes(None, np.zeros((dim, dim)) if networks == "own" else None)
        problem = problem_of(df.models.brownian(dim))
        return parameter_count(build_flow(problem, settings, axes, jr.key(0)))

    own, shared = ([parameters(d, kind) for d in (10, 20, 40)] for kind in ("own", "shared"))
    assert own[1] < 2.2 * own[0]
    assert own[2] < 2.4 * own[1]
    assert shared[2] > 3.5 * shared[1]


def test_networks_are_own_from_three_dimensions_on():
    def networks(dim, preset="quick", **settings):
        problem = problem_of(df.models.brownian(dim))
        return networks_rule(problem, settings_for(preset, **settings)).value

    assert [networks(d) for d in (1, 2, 3, 8)] == ["shared", "shared", "own", "own"]
    assert networks(4, "paper") == "shared"
    assert networks(3, context="path") == "shared"


@pytest.mark.parametrize("name, value", [("basis", "separated"), ("networks", "own")])
def test_the_papers_flow_has_neither(name, value):
    with pytest.raises(ValueError, match='need `flow="monotone"`'):
        settings_for("paper", **{name: value})


def test_unknown_choices_are_named():
    with pytest.raises(ValueError, match="`networks` must be one of auto, shared, own"):
        settings_for("quick", networks="none")
    with pytest.raises(ValueError, match="`basis` must be one of auto, axes, separated"):
        settings_for("quick", basis="x")


@pytest.mark.slow
def test_a_rotated_ansatz_is_the_plain_one_of_the_rotated_equation(getkey):
    """Along separated axes Beneš's process is that of angle zero: densities, forcings, scores."""
    rotated = ansatz_of(df.models.benes(dim=3), basis="separated", networks="own")
    columns = jnp.asarray(rotated.source.basis.columns)
    plain = ansatz_of(df.models.benes(angle=0.0, dim=3), basis="axes", networks="own")
    # Axes come in any order and sign, which the flow would tell apart; so it rests here.
    clock, (x, x0) = jnp.array(0.6), jr.normal(getkey(), (2, 3))
    rotation = jnp.asarray(df.models.benes(dim=3).sde.diffusion(0.0, jnp.zeros(3)))
    y, y0 = rotation.T @ x, rotation.T @ x0
    np.testing.assert_allclose(
        rotated.log_prob(x, clock**2, x0), plain.log_prob(y, clock**2, y0), rtol=1e-10
    )
    at = [a.coordinates(p, clock, p0) for a, p, p0 in ((rotated, x, x0), (plain, y, y0))]
    np.testing.assert_allclose(
        rotated.forcing(at[0], clock, x0), plain.forcing(at[1], clock, y0), rtol=1e-9
    )
    np.testing.assert_allclose(columns @ columns.T, np.eye(3), atol=1e-9)


@pytest.mark.slow
def test_densities_along_separated_axes_survive_files(tmp_path, getkey):
    from helpers import stepped_density

    model = df.models.benes(dim=3)
    density = stepped_density(model, basis="separated", source="closure")
    density.save(tmp_path / "model.dflow")
    again = df.load(tmp_path / "model.dflow")
    assert again.provenance.plan == density.provenance.plan
    x, x0 = 0.5 * jr.normal(getkey(), (2, 8, 3))
    np.testing.assert_array_equal(again.log_prob(x, 0.3, x0), density.log_prob(x, 0.3, x0))
    shared = ansatz_of(model, networks="shared", layers=2, hidden=3)
    assert len(shared.theta) != len(density.ansatz.theta)
