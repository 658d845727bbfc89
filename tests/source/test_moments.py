import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from diracflow.equation.moving_frame import Basis
from diracflow.source.moments import moment_source
from diracflow.source.separation import RotatedSource, rotated_sde
from diracflow.source.tabulated import TabulatedSource, with_frame
from helpers import EXACT_MODELS, frame_of

LINEAR = [name for name in EXACT_MODELS if name.startswith(("ou", "brownian"))]


@pytest.mark.parametrize("name", LINEAR)
def test_linear_equations_are_exact(name, getkey):
    model = EXACT_MODELS[name][0]
    source = df.SourceDensity(df.MomentSource(model.sde), 3.0)
    x0 = model.starts.sample(getkey(), (4,))
    found = df.errors(source, model.exact, [1e-4, 0.1, 3.0], x0, key=getkey()).squared_l2
    # Series and doublings are exact to rounding.
    assert np.all(found < 1e-18)


def test_stiff_and_growing_directions_are_exact(getkey):
    model = df.models.ornstein_uhlenbeck(2, rate=[[20.0, 1.0], [0.0, -0.4]])
    source = df.SourceDensity(df.MomentSource(model.sde), 5.0)
    x0 = jr.normal(getkey(), (4, 2))
    found = df.errors(source, model.exact, [0.01, 1.0, 5.0], x0, key=getkey()).squared_l2
    assert np.all(found < 1e-16)


def test_it_is_the_euler_step_at_first(getkey):
    model = df.models.sheared(4)
    x0, tau = 0.5 * jr.normal(getkey(), (4,)), jnp.array(1e-6)
    ours, euler = (frame_of(s(model.sde), tau, x0) for s in (df.MomentSource, df.EulerSource))
    np.testing.assert_allclose(ours.factor, euler.factor, rtol=1e-4, atol=1e-8)
    np.testing.assert_allclose(ours.mean, euler.mean, atol=1e-9)


def test_the_mean_follows_a_limit_cycle():
    def cycle(t, x):
        return jnp.stack([x[1], (1 - x[0] ** 2) * x[1] - x[0]])

    quiet = df.SDE(cycle, lambda t, x: 1e-4 * jnp.eye(2), 2)
    mean = frame_of(df.MomentSource(quiet), jnp.array(6.66), jnp.array([2.0, 0.0])).mean
    # Once around: the period of van der Pol's cycle is 6.66; 24 steps of first order in it.
    assert np.linalg.norm(mean - np.array([2.0, 0.0])) < 1.5


STEPS = (8, 16, 32, 256)


def coupled(t, x):
    return jnp.stack([x[1], jnp.sin(x[0]) - x[1] + 0.3 * jnp.cos(t)])


@pytest.mark.parametrize("start_time", [0.0, None])
def test_runge_kutta_steps_converge_with_order_three(start_time):
    sde = df.SDE(coupled, lambda t, x: jnp.diag(0.3 + 0.1 * jnp.cos(x)), 2)
    x0 = jnp.array([0.7, -0.4, 0.0])[: 2 if start_time == 0.0 else 3]
    sources = [df.MomentSource(sde, start_time, None, n) for n in STEPS]
    frames = [frame_of(source, jnp.array(2.0), x0) for source in sources]
    values = [jnp.concatenate([frame.mean, frame.factor.ravel()]) for frame in frames]
    errors = [float(jnp.linalg.norm(value - values[-1])) for value in values[:-1]]
    # The first step has an error of the square of its length, n^-1.5. Others are of order four.
    assert errors[0] / errors[1] > 7
    assert errors[1] / errors[2] > 7
    assert errors[2] < 1e-5


def test_both_kinds_of_steps_solve_the_same_equations():
    sde = df.SDE(coupled, lambda t, x: 0.3 * jnp.eye(2), 2)
    x0, tau = jnp.array([0.7, -0.4]), jnp.array(0.02)
    ours, other = (frame_of(df.MomentSource(sde, 0.0, None, n), tau, x0) for n in (64, None))
    # Exponential steps average derivatives over nodes, the others use differences between nodes:
    # equal up to terms of the order of the fourth power of the width, 0.04.
    np.testing.assert_allclose(ours.mean, other.mean, atol=1e-6)
    np.testing.assert_allclose(ours.factor, other.factor, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(
    "model, exponential",
    [
        (df.models.ornstein_uhlenbeck(2, rate=[[20.0, 1.0], [0.0, -0.4]]), True),
        (df.models.van_der_pol(), False),
        (df.models.langevin(), False),
    ],
    ids=["linear", "cycle", "degenerate"],
)
def test_steps_are_chosen_by_their_error(model, exponential):
    draws = np.asarray(model.starts.sample(jr.key(0), (64,)))
    source, error = moment_source(model.sde, 0.0, 1.0, draws)
    assert (source.steps is None) == exponential
    assert error < 3e-3


@pytest.mark.parametrize("rotated", [False, True])
def test_tabulated_frames_are_those_of_the_source(rotated):
    sde = df.SDE(coupled, lambda t, x: jnp.diag(0.3 + 0.1 * jnp.cos(x)), 2)
    x0, clock = jnp.array([0.7, -0.4]), jnp.array(0.8)
    source = df.MomentSource(sde, 0.0, None, 16)
    if rotated:
        basis = Basis(np.array([[0.6, -0.8], [0.8, 0.6]]))
        inner = df.MomentSource(rotated_sde(sde, basis), 0.0, None, 16)
        source = RotatedSource(sde, basis, inner)
    assert source.integrates
    known = eqx.filter_jit(with_frame)(source, clock, x0)

    @eqx.filter_jit
    def moved(source, x0):
        both = jax.jvp(lambda c: source.frame(c**2, x0), (clock,), (jnp.ones(()),))
        return jax.tree.leaves(eqx.filter(both, eqx.is_inexact_array))

    for found, expected in zip(
        moved(TabulatedSource(source), known), moved(source, x0), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(TabulatedSource(source).initial_condition(known).start, x0)
