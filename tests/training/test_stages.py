"""The time limit holds for all that `learn` does, and what takes long is shown."""

import itertools
import time

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from diracflow.learning import interface
from diracflow.training.progress import PlainProgress
from diracflow.training.stages import OutOfTime, begin, in_time, parts, tell, watched

MODEL = df.models.ornstein_uhlenbeck(1)  # linear: its source is exact, and steps cost nothing
SMALL = {"preset": "quick", "layers": 2, "hidden": 2, "bumps": 2, "samples": 64}


def quiet(stage, done):
    """Show nothing."""


@pytest.fixture
def clock(monkeypatch):
    """A clock that moves by one second whenever it is read."""
    ticks = itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: float(next(ticks)))


def test_stages_outside_a_training_have_no_limit():
    begin("stage")
    tell("stage")
    assert list(parts("stage", [1, 2, 3])) == [1, 2, 3]


def test_a_stage_ends_as_soon_as_it_cannot_be_completed(clock):
    done = []
    with watched(quiet, seconds=10), pytest.raises(OutOfTime):
        done += [part for part in parts("stage", list(range(100))) if not done.append(part)]
    # Two parts show the pace, a second each, at which a hundred do not fit.
    assert 1 <= len(done) <= 3
    with watched(quiet, seconds=10):
        assert list(parts("stage", [1, 2, 3])) == [1, 2, 3]


def test_a_stage_does_not_begin_without_the_time_to_compile():
    with watched(quiet, seconds=5, least=60), pytest.raises(OutOfTime):
        begin("stage")
    with watched(quiet, seconds=60, least=5):
        begin("stage")
        assert in_time(lambda: list(parts("stage", [1])), "late") == [1]
    with watched(quiet, seconds=0):
        assert in_time(lambda: list(parts("stage", [1])), "late") == "late"


def test_plain_lines_of_a_stage_are_few():
    lines = []
    with watched(PlainProgress(1.0, lines.append).stage):
        list(parts("error bound", list(range(50))))
        list(parts("lattice", list(range(50))))
    assert lines == ["error bound …", "lattice …"]


def test_what_is_left_out_can_be_computed_later(monkeypatch):
    arguments = (MODEL.sde, MODEL.starts, MODEL.horizon)
    lines = []

    class Lines(PlainProgress):
        def __init__(self, horizon):
            super().__init__(horizon, lines.append)

    whole = df.learn(*arguments, key=0, legs=2, progress=Lines, certify=False, **SMALL)
    for stage in ("planning", "compilation", "lattice"):
        assert any(line.startswith(stage) for line in lines)
    monkeypatch.setattr(interface, "_time_left", lambda *rest: (0.0, 0.0))
    with pytest.warns(UserWarning, match=r"max_seconds.*extended\(.*no time for the error bound"):
        part = df.learn(*arguments, key=0, legs=2, **SMALL)
    assert part.status is df.Status.TIME_LIMIT
    assert part.horizon == pytest.approx(whole.reach, rel=1e-12)
    assert part.provenance.certificate == ()
    with watched(PlainProgress(1.0, lines.append).stage):
        assert np.isfinite(part.certificate(0, part.horizon, [0.2], samples=2).bound)
    assert lines[-1].startswith("error bound")
    later, point = part.extended(MODEL.horizon), (jnp.array([0.1]), MODEL.horizon, jnp.array([0.2]))
    # Both sum over a lattice of the same law; `reach` differs by rounding.
    np.testing.assert_allclose(later.log_prob(*point), whole.log_prob(*point), rtol=1e-9)


def test_a_missing_error_bound_is_said(monkeypatch):
    monkeypatch.setattr(interface, "_time_left", lambda *rest: (0.0, 0.0))
    with pytest.warns(UserWarning, match=r"density\.certificate\(key, t, x0\)"):
        density = df.learn(MODEL.sde, MODEL.starts, 1.0, key=jr.key(0), **SMALL)
    assert density.status is df.Status.FINISHED
