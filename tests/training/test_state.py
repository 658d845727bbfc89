"""A loop that takes over the state of another goes on to the same bits."""

import dataclasses

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from diracflow.sde.fingerprint import Fingerprint
from diracflow.training.checkpoint_file import Contents, decoded, encoded
from diracflow.training.explicit_loop import SwitchingLoop
from diracflow.training.run_identity import Identity
from diracflow.training.state import Status
from helpers import prepared_for, problem_for, state_tables

SDE = df.SDE(lambda t, x: x - x**3, lambda t, x: 0.7 * jnp.eye(1), 1)
SMALL = {"layers": 2, "hidden": 2, "bumps": 2, "samples": 64, "source": "euler"}
# What a loop is made with, and what follows from the path.
FIXED = {"plan", "settings", "layout", "processes", "ansatz", "starts", "key"}
FIXED |= {"end", "origin", "budget", "divides", "_problem", "_hopeless", "_stays"}
PATH = {"clock", "clocks", "theta", "thetas", "first", "last", "history", "_began"}


def loop():
    prepared = prepared_for(problem_for(SDE, df.Normal(0.0, 1.0), 0.5), **SMALL)
    return SwitchingLoop(prepared, jr.key(1))


def switch_early(monkeypatch, patience):
    for name in ("_FEW", "_AFFORDABLE", "_EARLY"):
        monkeypatch.setattr(f"diracflow.training.explicit_loop.{name}", 0)
    monkeypatch.setattr("diracflow.training.explicit_loop._PATIENCE", patience)


def step(loop, steps):
    for _ in range(steps):
        assert loop.advance() is Status.FINISHED


def timeless(state):
    history = tuple(dataclasses.replace(record, seconds=0.0) for record in state.history)
    return state_tables(dataclasses.replace(state, history=history, seconds=0.0))


def through_file(state):
    """The state as a checkpoint brings it back."""
    probes = Fingerprint(np.zeros(1), *[np.zeros((1, 1))] * 2, np.zeros((1, 1, 1)))
    return decoded(encoded(Contents(Identity({}, probes), state, {}))).state


@pytest.mark.slow
@pytest.mark.parametrize("before", [1, 2, 4], ids=["start", "explicit", "implicit"])
def test_a_restored_loop_goes_on_to_the_same_bits(before, monkeypatch):
    # Steps are implicit from the fourth on, so that the switch lies ahead, or behind.
    switch_early(monkeypatch, patience=2)
    whole, resumed = loop(), loop()
    step(whole, before)
    resumed.restore(through_file(whole.state()))
    for part in (whole, resumed):
        step(part, 4)
    assert whole.short_steps == resumed.short_steps
    assert timeless(whole.state()) == timeless(resumed.state())


def test_all_that_steps_change_is_carried(monkeypatch):
    switch_early(monkeypatch, patience=2)
    made = loop()
    step(made, 4)
    assert set(vars(made)) - FIXED - PATH - {"regularisation"} <= set(made.CARRIED)
    assert set(vars(made.regularisation)) == {"value", "_evidence", "_raised", "_fixed"}
    assert len(set(made.CARRIED)) == len(made.CARRIED)
    # Compiled code may differ between a number of Python's and one of NumPy's.
    carried = made.state().carried
    nested = (*carried["regularisation"].values(), *carried["diagnostics"])
    values = [made.clock, *carried.values(), *nested]
    numbers = [v for v in values if not isinstance(v, np.ndarray | dict | tuple)]
    assert all(type(number) in (float, int, bool) for number in numbers)


def test_a_state_stays_as_it_was():
    made = loop()
    step(made, 2)
    state = made.state()
    before = state_tables(state)
    step(made, 2)
    assert state_tables(state) == before


def test_wall_time_adds_up():
    made, resumed = loop(), loop()
    step(made, 1)
    resumed.restore(dataclasses.replace(made.state(), seconds=1000.0))
    assert 1000 <= resumed.seconds() < 2000
    resumed.plan = dataclasses.replace(resumed.plan, max_seconds=999.0)
    assert resumed.run(lambda record: None) is Status.TIME_LIMIT
    assert len(resumed.history) == 1


def test_a_lost_training_is_lost_when_resumed():
    # Killed after the step that lost it, a run must not make another.
    made = loop()
    step(made, 1)
    lost = dataclasses.replace(made.history[-1], fresh_residual=0.9, residual=0.9, bound=1.0)
    assert made.clock < made.end
    resumed = loop()
    state = made.state()
    rows = 10 * state.first
    resumed.restore(
        dataclasses.replace(
            state,
            clocks=tuple(state.clocks[1] * np.linspace(0, 1, 11)),
            thetas=(state.thetas[0], *10 * state.thetas[1:]),
            first=rows,
            last=rows,
            history=(lost,) * 10,
        )
    )
    assert resumed.run(lambda record: None) is Status.FLOW_TOO_SMALL
    assert len(resumed.history) == 10


def test_tables_that_do_not_fit_are_refused():
    made = loop()
    step(made, 2)
    state = made.state()
    for wrong in ({"thetas": ()}, {"first": state.first[:1]}, {"last": (np.zeros(3),) * 2}):
        with pytest.raises(ValueError, match="do not fit"):
            dataclasses.replace(state, **wrong)
