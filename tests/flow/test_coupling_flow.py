"""Every flow goes through the same list; a new one is a line in `FLOWS`."""

import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from diracflow.planning.ansatz_builder import orders
from helpers import ansatz_for, problem_of, shaped_for


def settings(dim, preset, **changes):
    return shaped_for(problem_of(df.models.ornstein_uhlenbeck(dim)), preset, **changes)


def ansatz(dim, preset, **changes):
    changes = {"source": "euler"} | changes  # the quickest to build; flows do not depend on it
    problem = problem_of(df.models.ornstein_uhlenbeck(dim), 1.0)
    return ansatz_for(problem, preset, jr.key(1), **changes)


FLOWS = {
    "affine-2d": (2, "paper", {}),
    "affine-2d-two-layers": (2, "paper", {"layers": 2, "hidden": 3, "beta": 0.5}),
    "affine-3d-permuted": (3, "paper", {"layers": 4, "idle_dim": 1, "masks": "permuted"}),
    "affine-6d-fixed": (6, "paper", {"layers": 4}),
    "affine-6d-permuted": (6, "paper", {"layers": 6, "masks": "permuted"}),
    "monotone-1d": (1, "accurate", {}),
    "monotone-2d": (2, "accurate", {}),
    "monotone-2d-one-bump": (2, "accurate", {"layers": 2, "hidden": 3, "bumps": 1, "beta": 0.5}),
    "monotone-3d": (3, "accurate", {"idle_dim": 2}),
    "monotone-6d": (6, "accurate", {}),
}
# Others are like these but for their sizes.
SLOW = ("affine-2d-two-layers", "affine-6d-fixed", "monotone-2d-one-bump")
each_flow = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in FLOWS]
)


class Evaluation(eqx.Module):
    """A flow at one point, computed by one compiled program for all tests of a flow."""

    theta: jax.Array
    x: jax.Array
    z: jax.Array
    log_det: jax.Array
    back: jax.Array  # from the source to the state again
    jacobian: jax.Array
    gradient: jax.Array  # of the log-density in all parameters
    stages: jax.Array
    by_block: jax.Array  # where each block alone takes the state
    theta_again: jax.Array


@eqx.filter_jit
def evaluation(start, theta, x, x0):
    base = start.at(theta)
    flow = base.flow
    z, log_det = flow.to_source(x, x0)
    log_prob = lambda theta: base.at(theta).log_prob(x, jnp.array(0.5), x0)
    return Evaluation(
        theta=theta,
        x=x,
        z=z,
        log_det=log_det,
        back=flow.from_source(z, x0),
        jacobian=jax.jacfwd(lambda x: flow.to_source(x, x0)[0])(x),
        gradient=jax.grad(log_prob)(theta),
        stages=jnp.stack(flow.stages(z, x0)),
        by_block=eqx.filter_vmap(lambda block: block.to_source(x, x0)[0])(flow.blocks),
        theta_again=base.theta,
    )


@functools.cache
def evaluated(name):
    """Evaluate a flow at the identity and away from it."""
    dim, preset, changes = FLOWS[name]
    start, rng = ansatz(dim, preset, **changes), np.random.default_rng(len(name))
    x, x0, away = rng.normal(size=dim), rng.normal(size=dim), rng.normal(size=start.theta.shape)
    return [evaluation(start, start.theta + size * away, x, x0) for size in (0.0, 0.1)]


@each_flow
def test_starts_at_the_identity(name):
    found, _ = evaluated(name)
    np.testing.assert_allclose(found.z, found.x, rtol=1e-14)
    assert found.log_det == 0


@each_flow
def test_round_trip(name):
    _, found = evaluated(name)
    assert np.max(np.abs(found.z - found.x)) > 1e-3
    # Layers divide by slopes of 1 - beta or more and by mixing matrices; rounding grows a little.
    np.testing.assert_allclose(found.back, found.x, rtol=1e-10, atol=1e-10)


@each_flow
def test_log_determinant_is_that_of_the_jacobian(name):
    _, found = evaluated(name)
    expected = np.linalg.slogdet(np.asarray(found.jacobian))[1]
    np.testing.assert_allclose(found.log_det, expected, rtol=1e-9, atol=1e-11)


@each_flow
def test_gradient_reaches_every_parameter(name):
    _, found = evaluated(name)
    assert np.all(np.isfinite(found.gradient))
    assert np.all(np.asarray(found.gradient) != 0)


@each_flow
def test_stages_lead_from_source_to_state(name):
    _, found = evaluated(name)
    np.testing.assert_array_equal(found.stages[0], found.z)
    np.testing.assert_allclose(found.stages[-1], found.back, rtol=1e-12)


@each_flow
def test_parameters_round_trip(name):
    _, found = evaluated(name)
    np.testing.assert_array_equal(found.theta_again, found.theta)


@each_flow
def test_each_block_moves_every_component(name):
    _, found = evaluated(name)
    assert np.all(np.abs(np.asarray(found.by_block) - np.asarray(found.x)) > 1e-6)


def test_scale_stays_within_its_bounds(getkey):
    start = ansatz(2, "paper")
    flow = start.at(start.theta + 0.1 * jr.normal(getkey(), start.theta.shape)).flow
    layer = jax.tree.map(lambda leaf: 50 * leaf[0] if eqx.is_array(leaf) else leaf, flow.blocks)
    layer = layer.first.layer
    scale, _ = layer._coefficients(jr.normal(getkey(), (1,)), jr.normal(getkey(), (2,)))
    assert np.all((scale >= 1 - layer.beta) & (scale <= 1 + layer.beta))


@pytest.mark.parametrize(
    "dim, layers",
    [(2, 10), (3, 4), (4, 10), (6, 10), (16, 8), (20, 10)]
    + [(d, None) for d in (2, 3, 4, 6, 8, 10)],
)
def test_permuted_masks_separate_all_components(dim, layers):
    table = np.asarray(orders(dim, settings(dim, "accurate", layers=layers, networks="shared")))
    side = np.argsort(table, axis=1) < dim // 2
    apart = np.any(side[:, :, None] != side[:, None, :], axis=0)
    assert np.all(apart | np.eye(dim, dtype=bool))


@pytest.mark.parametrize("dim", [2, 4, 6])
@pytest.mark.parametrize("masks", ["fixed", "permuted"])
def test_no_component_is_moved_twice_in_a_row(dim, masks):
    # As sets: two layers in a row that move the same components would be one affine layer.
    table = np.asarray(orders(dim, settings(dim, "paper", masks=masks)))
    half = dim // 2
    moves = [side for order in table for side in (set(order[half:]), set(order[:half]))]
    assert all(now != before for before, now in itertools.pairwise(moves))


def test_in_two_dimensions_the_masks_are_the_papers():
    fixed, permuted = (
        orders(2, settings(2, "paper", masks=masks)) for masks in ("fixed", "permuted")
    )
    np.testing.assert_array_equal(fixed, permuted)


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["accurate", "paper"])
def test_layers_are_scanned_not_unrolled(preset):
    # The program of a longer flow must not be longer: compile time does not grow with the layers.
    sizes = []
    for layers in (2, 20):
        flow = ansatz(2, preset, layers=layers).flow
        jaxpr = jax.make_jaxpr(lambda x, f=flow: f.to_source(x, x))(jnp.zeros(2))
        sizes.append(str(jaxpr).count("dot_general"))
    assert sizes[0] == sizes[1]


def test_affine_layers_need_idle_components():
    with pytest.raises(ValueError, match=r"idle.*dim=1.*one dimension"):
        ansatz(1, "paper")
