"""Drifts that send paths to infinity, and those that only seem to."""

import jax.numpy as jnp
import numpy as np
import pytest

import diracflow as df
from diracflow.planning.explosion import explodes
from diracflow.source.closure import ClosureSource
from diracflow.source.ensemble import ensemble
from helpers import problem_for

ONE = np.eye(1)
# Drift, horizon, whether paths from N(0, 1) explode.
DRIFTS = {
    "cubic": (lambda t, x: x**3, 1.0, True),
    "exponential": (lambda t, x: jnp.exp(x), 2.0, True),
    "double well": (lambda t, x: 100 * (x - x**3), 5.0, False),
    "stiff": (lambda t, x: -1e6 * x, 20.0, False),
    "unknown far out": (lambda t, x: jnp.where(x > 2, jnp.nan, x), 1.0, False),
}


def equation(drift):
    return df.SDE(drift, lambda t, x: jnp.eye(1), 1)


@pytest.mark.parametrize("drift, horizon, expected", DRIFTS.values(), ids=DRIFTS)
def test_explosions_are_told_from_stiffness(drift, horizon, expected):
    problem = problem_for(equation(drift), df.Normal(0.0, 1.0), horizon)
    assert explodes(problem) is expected


def test_what_explodes_later_does_not_spoil_the_frame_before():
    # Paths under exp explode around t = 1. Knots are equal in the clock, so those of the shorter
    # horizon are the finer ones.
    horizon = 2.0
    early = ensemble(equation(lambda t, x: jnp.exp(x)), np.zeros(1), ONE, 0.0, 0.02)
    found = ensemble(equation(lambda t, x: jnp.exp(x)), np.zeros(1), ONE, 0.0, horizon)
    clocks = np.sqrt(horizon) * np.linspace(0, 1, 33)
    widths = np.array([float(found.widening(jnp.asarray(c))[0, 0]) for c in clocks])
    assert np.all(np.isfinite(widths))
    clock = jnp.asarray(0.1)
    # Splines of step sqrt(horizon) / 2048, one of them coarse, where widths change by a hundredth.
    np.testing.assert_allclose(found.widening(clock), early.widening(clock), rtol=2e-3)


def test_stiff_linear_drifts_have_their_exact_source():
    rate, horizon = 1e6, 20.0
    sde = equation(lambda t, x: rate * (0.3 - x))
    source = ClosureSource(sde, ensemble(sde, np.zeros(1), ONE, 0.0, horizon), 0.0)
    frame = source.frame(jnp.asarray(horizon), jnp.asarray([2.0]))
    # Stationary: mean 0.3, variance 1 / (2 rate); rounding grows with the doublings.
    np.testing.assert_allclose(frame.mean, [0.3], rtol=1e-6)
    np.testing.assert_allclose(frame.factor**2, [[1 / (2 * rate)]], rtol=1e-6)
