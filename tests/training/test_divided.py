"""Trainings whose steps become short end, and the horizon is composed of what was learned."""

import jax.numpy as jnp
import numpy as np
import pytest

import diracflow as df
from diracflow.evaluate.spectral_grid import SpectralGrid, transition_densities
from diracflow.planning.subinterval_rule import divisible
from diracflow.training import explicit_loop
from helpers import problem_for

WELL, HORIZON = df.models.double_well(), 1.5
SMALL = {"layers": 2, "hidden": 2, "samples": 256, "certify": False, "preset": "quick"}
pytestmark = pytest.mark.usefixtures("few_paths")


@pytest.fixture
def dear_steps(monkeypatch):
    """Let every step count as too dear, so that a training ends as soon as it may."""
    monkeypatch.setattr(explicit_loop, "_AFFORDABLE", 1.0)


def learned(**changes):
    return df.learn(0, WELL.sde, WELL.starts, HORIZON, **SMALL | changes)


@pytest.mark.usefixtures("dear_steps")
def test_the_horizon_is_composed_of_what_was_learned(tmp_path):
    density = learned(checkpoint=tmp_path)
    plan = density.provenance.plan
    assert density.status is df.Status.FINISHED
    assert density.horizon == HORIZON
    # The flow was trained for a sixteenth of the horizon at least, and no further than it had to.
    assert 2 <= density.legs <= 16
    assert HORIZON / density.legs <= density.reach < HORIZON / 2
    assert plan.legs == density.legs
    assert "steps became short at t=" in plan.reasons["legs"]
    # No transition brings laws farther apart, so that the bounds of subintervals add up. They are
    # means over starts; a single start may be worse by a factor of two.
    grid = SpectralGrid([-4.5], [4.5], 301)
    x0 = np.array([[-0.9], [0.3]])
    exact = transition_densities(WELL.sde, grid, x0, [HORIZON])[0]
    found = np.stack([density.prob(grid.nodes(), HORIZON, start) for start in x0])
    distances = 0.5 * grid.volume * np.sum(np.abs(found - exact), axis=1)
    assert np.all(distances < 2 * density.legs * density.provenance.history[-1].bound)
    # Recorded: 4e-4 and 7e-4. Other processors round differently, which changes steps.
    assert np.all(distances < 3e-3)
    again = learned(checkpoint=tmp_path)
    np.testing.assert_array_equal(*(d.log_prob(x0, HORIZON, x0) for d in (again, density)))


@pytest.mark.usefixtures("dear_steps")
def test_where_paths_leave_the_starts_a_wider_law_is_learned(tmp_path):
    narrow = df.Normal(0.1, 0.1)
    # With this source, both laws of starts share the programs of steps.
    call = {"source": "euler", "checkpoint": tmp_path, **SMALL}
    density = df.learn(0, WELL.sde, narrow, HORIZON, **call)
    plan = density.provenance.plan
    assert density.status is df.Status.FINISHED
    assert (density.horizon, plan.starts, density.legs) == (HORIZON, "widened", plan.legs)
    assert plan.legs > 1
    # Later subintervals begin in the wells, where the narrow law has no starts.
    assert np.all(density.coverage(np.array([[-1.0], [1.0]])) > 1e-3)
    grid = SpectralGrid([-4.5], [4.5], 301)
    x0 = np.array([[0.0], [0.2]])
    exact = transition_densities(WELL.sde, grid, x0, [HORIZON])[0]
    found = np.stack([density.prob(grid.nodes(), HORIZON, start) for start in x0])
    distances = 0.5 * grid.volume * np.sum(np.abs(found - exact), axis=1)
    assert np.all(distances < 2 * density.legs * density.provenance.history[-1].bound)
    # The second training resumes from its own checkpoints.
    again = df.learn(0, WELL.sde, narrow, HORIZON, **call)
    np.testing.assert_array_equal(*(d.log_prob(x0, HORIZON, x0) for d in (again, density)))
    density.save(tmp_path / "wide.dflow")
    loaded = df.load(tmp_path / "wide.dflow", sde=WELL.sde)
    np.testing.assert_array_equal(*(d.log_prob(x0, HORIZON, x0) for d in (loaded, density)))


@pytest.mark.usefixtures("dear_steps")
def test_a_number_of_subintervals_that_was_asked_for_is_kept():
    with pytest.warns(UserWarning, match="`max_steps`"):
        density = learned(legs=1, max_steps=24)
    assert isinstance(density, df.TransitionDensity)


def test_coefficients_must_be_constant_and_a_lattice_possible():
    assert divisible(problem_for(WELL.sde, WELL.starts, HORIZON))
    driven = df.SDE(lambda t, x: jnp.sin(t) - x**3, 0.7)
    assert not divisible(problem_for(driven, df.Normal(0.0, 1.0), HORIZON))
    space = df.models.brownian(3)
    assert not divisible(problem_for(space.sde, space.starts, 0.1))


@pytest.mark.usefixtures("dear_steps")
def test_a_training_that_would_take_too_long_says_so_early(monkeypatch):
    monkeypatch.setattr(explicit_loop, "_HOPELESS", 1.0)
    monkeypatch.setattr(explicit_loop, "divisible", lambda problem: False)
    with pytest.raises(df.TrainingFailed, match="TOO_SLOW.* Raise `tolerance`") as caught:
        df.learn(0, WELL.sde, WELL.starts, HORIZON, preset="quick", certify=False)
    # Ten steps after those that are short for every equation, of some forty.
    assert 0 < caught.value.density.horizon < HORIZON / 2
    assert caught.value.status is df.Status.TOO_SLOW


def test_a_tighter_tolerance_may_take_more_steps():
    """Their number grows as its square root or slower (tests of the order of the pair)."""
    default, tight = 3e-3, 1e-3
    switch, end = explicit_loop.costs(200, 2048, 952, default)
    assert switch == end
    # Heston's training took 143 and 171 steps; a step of order two would take 1.7 times as many.
    assert max(explicit_loop.costs(1.7 * 200, 2048, 952, tight)) < switch
    # A looser tolerance does not put off implicit steps, but a training should end earlier.
    switch_loose, end_loose = explicit_loop.costs(200, 2048, 952, 5 * default)
    assert switch_loose == switch
    assert end_loose > end
