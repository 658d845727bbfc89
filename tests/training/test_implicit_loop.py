import dataclasses

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from diracflow.training.explicit_loop import SwitchingLoop
from helpers import RECORD, prepared_for, problem_for


def loop(sde, **settings):
    small = {"layers": 2, "hidden": 2, "samples": 64}
    prepared = prepared_for(problem_for(sde, df.Normal(0.0, 1.0)), **small, **settings)
    return SwitchingLoop(prepared, jr.key(1))


@pytest.mark.parametrize("left, counted", [(0.0, 0.0), (0.25, 0.5), (9.0, 1.0)])
def test_a_step_may_err_by_a_fiftieth_of_its_residual(left, counted):
    # `left` is a fraction of the mean square of the forcing, and is cut off at one.
    made, length = loop(df.models.benes().sde, source="euler"), 0.1
    made.history = [dataclasses.replace(RECORD, forcing=2.0, fresh_residual=left)]
    expected = max(made.allowed_error(length), 0.02 * length * 2.0 * counted)
    assert made._allowed(length) == pytest.approx(expected, rel=1e-12)


def test_the_interpolation_error_may_grow_with_the_accumulated_residual():
    made = loop(df.models.benes().sde, source="euler")
    assert made._allowed_interpolation() == made.budget.total
    made.bound = 1.0
    # A twentieth of it is more than the budget by now.
    assert made._allowed_interpolation() == pytest.approx(0.05)


@pytest.mark.parametrize("source", ["moments", "closure"])
def test_the_first_points_are_where_their_noise_is(source):
    # The flow is the identity at the start, where moments of a hypoelliptic equation have no frame.
    noise = jnp.array([[0.0], [1.0]]) if source == "moments" else jnp.eye(2)
    oscillator = df.SDE(lambda t, x: jnp.stack([x[1], -x[0]]), lambda t, x: noise, 2)
    made = loop(oscillator, source=source, context="path")
    draws = made.draw()
    points = made.place(made.theta, 0.0, draws)
    np.testing.assert_allclose(points.y, draws.noise, rtol=1e-12, atol=1e-12)


def test_a_path_through_knots_is_exact_for_parabolas():
    # A third knot tells a parabola from a chord: its slopes are exact from the second step on.
    made = loop(df.models.benes().sde, source="euler")
    clocks = np.array([0.0, 0.1, 0.3, 0.35, 0.6])
    parabola = lambda clock: made.origin + np.outer(clock, np.ones(len(made.origin))) * (2 - clock)
    for clock, length in zip(clocks[1:], np.diff(clocks), strict=True):
        made.move_through(parabola(np.array([clock]))[0], length)
    between = np.array([0.1, 0.13, 0.2, 0.29, 0.32, 0.4, 0.5, 0.6])
    found = jax.vmap(made.trajectory())(jnp.asarray(between**2))
    np.testing.assert_allclose(found, parabola(between[:, None]), atol=1e-13)


def test_explicit_steps_keep_their_own_slopes():
    made = loop(df.models.benes().sde, source="euler")
    one = np.ones_like(made.theta)
    made.move(made.theta + 0.1 * one, 0.1, (one, 5 * one))
    made.move_through(made.theta + 0.2 * one, 0.1)
    np.testing.assert_array_equal(made.last[0], 5 * one)
    # The slope is the mean of the chords, because the steps are equally long.
    np.testing.assert_allclose(made.first[1], 1.5 * one)


def test_the_velocity_is_compiled_without_being_run():
    # Two programs that run at the same time can deadlock.
    ran = []

    def drift(t, x):
        jax.debug.callback(lambda: ran.append(1))
        return -x

    made = loop(df.SDE(drift, lambda t, x: jnp.eye(2), 2), source="euler", context="start")
    compiled = made.compilation()
    jax.effects_barrier()
    ran.clear()
    compiled()
    jax.effects_barrier()
    assert not ran
    made.field(made.draw())(made.theta, made.length)
    jax.effects_barrier()
    assert ran
