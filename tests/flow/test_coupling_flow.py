"""Every flow goes through the same list; a new one is a line in `FLOWS`."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from diracflow.planning.build_ansatz import build_ansatz
from diracflow.planning.masks import orders
from diracflow.planning.settings import settings_for
from diracflow.planning.sizes import sized


def settings(dim, preset, **changes):
    return sized(settings_for(preset, **changes), dim)


def ansatz(dim, preset, **changes):
    model = df.models.ornstein_uhlenbeck(dim)
    return build_ansatz(
        *(model.sde, model.starts, 0.0, 1.0, settings(dim, preset, **changes), jr.key(1))
    )


FLOWS = {
    "affine-2d": ansatz(2, "paper"),
    "affine-2d-two-layers": ansatz(2, "paper", layers=2, hidden=3, beta=0.5),
    "affine-3d-permuted": ansatz(3, "paper", layers=4, idle_dim=1, masks="permuted"),
    "affine-6d-fixed": ansatz(6, "paper", layers=4),
    "affine-6d-permuted": ansatz(6, "paper", layers=6, masks="permuted"),
    "monotone-1d": ansatz(1, "accurate"),
    "monotone-2d": ansatz(2, "accurate"),
    "monotone-2d-one-bump": ansatz(2, "accurate", layers=2, hidden=3, bumps=1, beta=0.5),
    "monotone-3d": ansatz(3, "accurate", idle_dim=2),
    "monotone-6d": ansatz(6, "accurate"),
}
# Others are like these but for their sizes.
SLOW = ("affine-2d-two-layers", "affine-6d-fixed", "monotone-2d-one-bump")
each_flow = pytest.mark.parametrize(
    "start",
    [
        pytest.param(flow, id=name, marks=pytest.mark.slow if name in SLOW else ())
        for name, flow in FLOWS.items()
    ],
)


def moved(start, key):
    """The flow away from the identity."""
    return start.at(start.theta + 0.1 * jr.normal(key, start.theta.shape)).flow


@each_flow
def test_starts_at_the_identity(start, getkey):
    x, x0 = jr.normal(getkey(), (2, start.source.sde.dim))
    z, log_det = start.flow.to_source(x, x0)
    np.testing.assert_allclose(z, x, rtol=1e-14)
    assert log_det == 0


@each_flow
def test_round_trip(start, getkey):
    flow, dim = moved(start, getkey()), start.source.sde.dim
    x, x0 = jr.normal(getkey(), (2, dim))
    z, _ = flow.to_source(x, x0)
    assert np.max(np.abs(z - x)) > 1e-3
    # Layers divide by slopes of 1 - beta or more and by mixing matrices; rounding grows a little.
    np.testing.assert_allclose(flow.from_source(z, x0), x, rtol=1e-10, atol=1e-10)


@each_flow
def test_log_determinant_is_that_of_the_jacobian(start, getkey):
    flow, dim = moved(start, getkey()), start.source.sde.dim
    x, x0 = jr.normal(getkey(), (2, dim))
    jacobian = jax.jacfwd(lambda x: flow.to_source(x, x0)[0])(x)
    expected = jnp.linalg.slogdet(jacobian)[1]
    np.testing.assert_allclose(flow.to_source(x, x0)[1], expected, rtol=1e-9, atol=1e-11)


@each_flow
def test_gradient_reaches_every_parameter(start, getkey):
    base = start.at(start.theta + 0.1 * jr.normal(getkey(), start.theta.shape))
    x, x0 = jr.normal(getkey(), (2, start.source.sde.dim))
    tau = jnp.array(0.5)
    gradient = jax.grad(lambda theta: base.at(theta).log_prob(x, tau, x0))(base.theta)
    assert np.all(np.isfinite(gradient))
    assert np.all(gradient != 0)


@each_flow
def test_stages_lead_from_source_to_state(start, getkey):
    flow, dim = moved(start, getkey()), start.source.sde.dim
    z, x0 = jr.normal(getkey(), (2, dim))
    stages = flow.stages(z, x0)
    np.testing.assert_array_equal(stages[0], z)
    np.testing.assert_allclose(stages[-1], flow.from_source(z, x0), rtol=1e-12)


@each_flow
def test_parameters_round_trip(start, getkey):
    theta = jr.normal(getkey(), start.theta.shape)
    np.testing.assert_array_equal(start.at(theta).theta, theta)


def test_scale_stays_within_its_bounds(getkey):
    layer = moved(FLOWS["affine-2d"], getkey()).blocks.first.layer
    layer = jax.tree.map(lambda leaf: 50 * leaf[0] if eqx.is_array(leaf) else leaf, layer)
    scale, _ = layer._coefficients(jr.normal(getkey(), (1,)), jr.normal(getkey(), (2,)))
    assert np.all((scale >= 1 - layer.beta) & (scale <= 1 + layer.beta))


@each_flow
def test_each_block_moves_every_component(start, getkey):
    flow, dim = moved(start, getkey()), start.source.sde.dim
    x, x0 = jr.normal(getkey(), (2, dim))
    for index in range(len(jax.tree.leaves(flow.blocks)[0])):
        block = jax.tree.map(
            lambda leaf, i=index: leaf[i] if eqx.is_array(leaf) else leaf, flow.blocks
        )
        assert np.all(np.abs(block.to_source(x, x0)[0] - x) > 1e-6)


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
