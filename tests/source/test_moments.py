import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from helpers import EXACT_MODELS

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
    ours, euler = (s(model.sde).frame(tau, x0) for s in (df.MomentSource, df.EulerSource))
    np.testing.assert_allclose(ours.factor, euler.factor, rtol=1e-4, atol=1e-8)
    np.testing.assert_allclose(ours.mean, euler.mean, atol=1e-9)


def test_the_mean_follows_a_limit_cycle():
    def cycle(t, x):
        return jnp.stack([x[1], (1 - x[0] ** 2) * x[1] - x[0]])

    quiet = df.SDE(cycle, lambda t, x: 1e-4 * jnp.eye(2), 2)
    mean = df.MomentSource(quiet).frame(jnp.array(6.66), jnp.array([2.0, 0.0])).mean
    # Once around: the period of van der Pol's cycle is 6.66; 24 steps of first order in it.
    assert np.linalg.norm(mean - np.array([2.0, 0.0])) < 1.5
