import dataclasses

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from diracflow.training.build import build_ansatz
from diracflow.training.settings import settings_for
from diracflow.training.sizes import sized
from diracflow.training.switching_loop import SwitchingLoop
from helpers import RECORD


def loop(sde, **settings):
    chosen = sized(settings_for("quick", layers=2, hidden=2, samples=64, **settings), 2)
    starts = df.Normal(0.0, 1.0).expand(2)
    ansatz = build_ansatz(sde, starts, 0.0, 1.0, chosen, jr.key(0))
    return SwitchingLoop(ansatz, starts, 1.0, chosen, jr.key(1))


@pytest.mark.parametrize("left, counted", [(0.0, 0.0), (0.25, 0.5), (9.0, 1.0)])
def test_steps_may_err_by_a_fiftieth_of_what_is_left_over(left, counted):
    # `left` is a share of mean squares; more than all of the forcing cannot be left.
    made, length = loop(df.models.benes().sde, source="euler"), 0.1
    made.history = [dataclasses.replace(RECORD, forcing=2.0, fresh_residual=left)]
    expected = max(made.share(length), 0.02 * length * 2.0 * counted)
    assert made._allowed(length) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("source", ["moments", "closure"])
def test_the_first_points_are_where_their_noise_is(source):
    # The flow is the identity at the start, where moments of a hypoelliptic equation have no frame.
    noise = jnp.array([[0.0], [1.0]]) if source == "moments" else jnp.eye(2)
    oscillator = df.SDE(lambda t, x: jnp.stack([x[1], -x[0]]), lambda t, x: noise, 2)
    made = loop(oscillator, source=source, context="path")
    draws = made.draw()
    points = made.place(made.theta, 0.0, draws)
    np.testing.assert_allclose(points.y, draws.noise, rtol=1e-12, atol=1e-12)
