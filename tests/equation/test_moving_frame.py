import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from diracflow.equation.moving_frame import Frame, ratio_equation
from diracflow.source.gaussian_source import standard_log_prob
from helpers import EXACT_MODELS

each_model = pytest.mark.parametrize("model, order", EXACT_MODELS.values(), ids=EXACT_MODELS)


def turning_frame(c, x0):
    """A frame that follows no source: its mean wanders, its axes shear and stretch."""
    d = len(x0)
    strictly_lower = jnp.tril(jnp.ones((d, d)), -1)
    factor = jnp.eye(d) * (0.5 + c) + jnp.sin(c) * strictly_lower
    return Frame(x0 + jnp.cos(c) * jnp.arange(1.0, d + 1), factor)


def log_ratio_of(exact, frame, c, x0, zeta):
    x = frame.restore(zeta)
    return exact.log_prob(x, c**2, x0) + frame.log_det() - standard_log_prob(zeta)


@each_model
@pytest.mark.parametrize("source", ["euler", "turning"])
def test_exact_density_solves_the_equation_of_the_ratio(model, order, source, getkey):
    x0, zeta = 0.5 * jr.normal(getkey(), (2, model.sde.dim))
    c = jnp.array(0.8)
    euler = df.EulerSource(model.sde)
    frame_at = (
        (lambda c: euler.frame(c**2, x0)) if source == "euler" else lambda c: turning_frame(c, x0)
    )

    @jax.jit
    def both(c, zeta):
        frame, rate = jax.jvp(frame_at, (c,), (jnp.ones(()),))
        equation = ratio_equation(model.sde, c**2, c, frame, rate, zeta)
        found = equation.rate(lambda z: log_ratio_of(model.exact, frame, c, x0, z))[1]
        return found, jax.grad(lambda c: log_ratio_of(model.exact, frame_at(c), c, x0, zeta))(c)

    found, expected = both(c, zeta)
    # Exact derivatives of closed forms on both sides: only float64 rounding differs.
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)


def test_nothing_cancels_at_small_clocks(getkey):
    # Multiplicative noise: just after the start the identity flow has a forcing that tends to a
    # limit, here at clocks where terms of size 1/c^2 would leave nothing of it.
    model = df.models.sheared(4)
    x0, zeta = jr.normal(getkey(), (2, 4))
    source = df.EulerSource(model.sde)

    @jax.jit
    def forcing(c):
        frame, rate = jax.jvp(lambda c: source.frame(c**2, x0), (c,), (jnp.ones(()),))
        return ratio_equation(model.sde, c**2, c, frame, rate, zeta).source

    clocks = np.array([1e-4, 1e-6, 1e-8])
    values = np.array([forcing(jnp.array(c)) for c in clocks])
    slopes = np.diff(values) / np.diff(clocks)
    # The limit is approached linearly in c, and rounding is 1e-16 / c: a hundredth of the last
    # difference. A term of size 1 / c^2 with its rounding would be of size one.
    np.testing.assert_allclose(slopes[0], slopes[1], rtol=0.05)


def test_frame_round_trip(getkey):
    frame, x = turning_frame(0.3, jr.normal(getkey(), (3,))), jr.normal(getkey(), (3,))
    np.testing.assert_allclose(frame.restore(frame.standardise(x)), x, rtol=1e-12)
    np.testing.assert_allclose(frame.log_det(), jnp.linalg.slogdet(frame.factor)[1], rtol=1e-12)
