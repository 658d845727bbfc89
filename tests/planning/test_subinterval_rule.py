import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from diracflow.evaluate.spectral_grid import SpectralGrid, transition_densities
from diracflow.planning.settings import settings_for
from helpers import problem_for, shaped_for

LAW = df.Normal(0.0, 1.0)


def cycle(t, x):
    return jnp.stack([x[1], (1 - x[0] ** 2) * x[1] - x[0]])


def noise(t, x):
    return 0.5 * jnp.eye(2)


def legs_of(drift, horizon, diffusion=noise, law=LAW, **settings):
    problem = problem_for(df.SDE(drift, diffusion, 2), law, horizon)
    return shaped_for(problem, **{"context": "auto", "legs": None} | settings).legs


def test_a_limit_cycle_is_divided_where_it_turns():
    # It turns by 5.8 radians up to t = 5; a leg may turn by one.
    assert legs_of(cycle, 5.0) == 6
    assert legs_of(cycle, 0.8) == 1
    assert legs_of(cycle, 1.5) == 2
    assert legs_of(cycle, 20.0) == 12
    assert legs_of(cycle, 5.0, legs=1) == 1
    assert legs_of(cycle, 5.0, context="start") == 1


def test_linear_equations_turn_with_their_source():
    assert legs_of(lambda t, x: jnp.stack([-x[1], x[0]]), 20.0) == 1


def test_drifts_that_do_not_turn_have_one_leg():
    assert legs_of(lambda t, x: x - x**3, 20.0) == 1


@pytest.mark.parametrize(
    "drift, diffusion",
    [
        (lambda t, x: cycle(t, x) + 0.1 * jnp.sin(t), noise),
        (cycle, lambda t, x: (1 + 0.1 * t) * noise(t, x)),
        # Whose period divides the horizon.
        (lambda t, x: cycle(t, x) + 0.1 * jnp.sin(2 * jnp.pi * t), noise),
    ],
)
def test_coefficients_that_depend_on_time_have_one_leg(drift, diffusion):
    assert legs_of(drift, 5.0, diffusion) == 1
    with pytest.raises(ValueError, match="`legs=2` needs coefficients.*`legs=1`"):
        legs_of(drift, 5.0, diffusion, legs=2)


@pytest.mark.parametrize("legs", [0, 17, 1.5, "two"])
def test_numbers_of_legs_are_checked(legs):
    with pytest.raises(ValueError, match="`legs`"):
        settings_for("quick", legs=legs)


@pytest.mark.slow
def test_a_training_in_two_legs_reaches_the_horizon():
    sde = df.SDE(lambda t, x: x - x**3, lambda t, x: 0.7 * jnp.eye(1), 1)
    settings = {"preset": "quick", "layers": 2, "hidden": 3, "samples": 256, "certify": False}
    density = df.learn(sde, df.Normal(0.0, 1.0), 0.6, key=jr.key(0), legs=2, **settings)
    assert (density.horizon, density.reach, density.status) == (0.6, 0.3, df.Status.FINISHED)
    assert density.provenance.history[-1].time == pytest.approx(0.3)
    grid, x0 = SpectralGrid([-4.0], [4.0], 133), np.array([0.4])
    p = transition_densities(sde, grid, x0[None], [0.6])[0, 0]
    q = np.asarray(density.prob(grid.nodes(), 0.6, x0))
    # Tolerance of `quick`, 0.015 nats, in either leg, and a mixture that errs by less.
    assert 0.5 * np.sum(np.abs(p - q)) * grid.volume < 0.02
