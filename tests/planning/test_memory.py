"""Memory told and bounded before a training, cores limited on request, time within its limit."""

import itertools
import os
import subprocess
import sys
import types

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from diracflow.galerkin.velocity import NormalEquations, Velocity
from diracflow.planning import memory
from diracflow.planning.settings import settings_for
from diracflow.planning.size_rules import samples_rule
from diracflow.training.explicit_loop import ExplicitLoop
from diracflow.training.state import Status


def chosen(**changes):
    samples = samples_rule(settings_for("quick"), 400).value
    return settings_for("quick", **{"samples": samples} | changes)


def test_predicted_memory_grows_with_its_largest_tables():
    small, large = (memory.predicted_memory(chosen(samples=n), 400, 2) for n in (2**12, 2**18))
    # One table of float64 numbers for each more, at least; and no more than a score of them.
    table = 8 * 400 * (2**18 - 2**12)
    assert table <= large - small <= 20 * table
    assert memory.predicted_memory(chosen(), 800, 2) > memory.predicted_memory(chosen(), 400, 2)


def test_memory_is_bounded_by_the_control_group(tmp_path, monkeypatch):
    machine = memory.available_memory()
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "none").write_text("max\n")
    monkeypatch.setattr(memory, "_LIMITS", [str(tmp_path / n) for n in ("memory.max", "none", "-")])
    assert memory.available_memory() == 1e6 < machine


def test_more_memory_than_allowed_is_refused_before_anything_is_learned():
    model = df.models.brownian(1)
    with pytest.raises(ValueError, match=r"16777216 samples.*`memory_limit` allows 2 GB.*Lower"):
        df.learn(
            *(model.sde, model.starts, 1.0),
            key=jr.key(0),
            samples=2**24,
            memory_limit=2.0,
        )
    with pytest.raises(ValueError, match="`memory_limit` must be positive"):
        df.learn(model.sde, model.starts, 1.0, key=jr.key(0), memory_limit=0)


@pytest.mark.parametrize("threads", [0, -1, 1.5, "two", True])
def test_threads_are_a_whole_number(threads):
    with pytest.raises(ValueError, match="`threads` must be a whole number"):
        df.limit_threads(threads)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores are set on Linux only")
def test_threads_are_limited_whenever_they_were_made():
    code = """if True:
        import os, sys, threading
        from diracflow.training.threads import limit_threads
        found, go = [], threading.Event()
        look = lambda: (go.wait(), found.append(len(os.sched_getaffinity(0))))
        early = threading.Thread(target=look)
        early.start()
        limit_threads(1)
        late = threading.Thread(target=look)
        late.start()
        go.set(), early.join(), late.join()
        print(found, len(os.sched_getaffinity(0)), os.environ["NPROC"], "jax" in sys.modules)
    """
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout == "[1, 1] 1 1 False\n", result.stderr


def test_elsewhere_threads_are_limited_before_jax(monkeypatch):
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    with pytest.raises(ValueError, match="before JAX is imported.*NPROC=1"):
        df.limit_threads(1)


class Rejecting(ExplicitLoop):
    """No step is good enough, and every glance at the clock is a second."""

    def __init__(self, max_seconds):
        self.plan = types.SimpleNamespace(max_seconds=max_seconds)
        self.theta, self.clock, self.end, self.length = np.zeros(1), 0.5, 1.0, 0.1
        self.history, self._ticks = [], itertools.count()

    def seconds(self):
        return next(self._ticks)

    def allowed_error(self, length):
        return -1.0

    def next_length(self, length, error):
        return length

    def draw(self, held_out=False):
        return None

    def field(self, draws):
        normal, zero = NormalEquations(jnp.eye(1), jnp.zeros(1)), jnp.zeros(())
        return lambda theta, clock: Velocity(jnp.ones(1), normal, zero, zero[None], zero, zero)


def test_time_runs_out_also_while_steps_are_rejected():
    assert Rejecting(max_seconds=3.0).explicit_step() is Status.TIME_LIMIT
    # Steps shorten by three tenths at least: after 60 of them there is none left.
    loop = Rejecting(max_seconds=100.0)
    assert loop.explicit_step() is Status.STIFF
    assert loop.seconds() <= 60


def test_announcements_go_where_progress_does():
    from diracflow.training.progress import PlainProgress

    lines = []
    PlainProgress(1.0, lines.append).announce("about 1 GB")
    assert lines == ["about 1 GB"]
