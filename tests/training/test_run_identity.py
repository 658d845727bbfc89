"""Which runs are the same, and what is said of those that are not."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from diracflow.planning.plan import plan_of
from diracflow.planning.settings import settings_for
from diracflow.sde.fingerprint import Fingerprint
from diracflow.training.run_identity import Identity, identity
from helpers import problem_for


def sde(rate=1.0, noise=0.5, **options):
    return df.SDE(lambda t, x: -rate * x + t, lambda t, x: noise * jnp.eye(1), 1, **options)


def family(power=1):
    def drift(t, x, p):
        return -p["rate"] * x**power

    return df.SDE(drift, lambda t, x, p: jnp.eye(1), 1, params=("rate",))


RATE = {"rate": df.Uniform(1, 4)}
ONE_DEVICE = {"devices": 1, "chunk": 64, "memory": 1e9, "reasons": {}}
TWO_DEVICES = {"devices": 2, "chunk": 16, "memory": 2e9, "reasons": {"layers": "few suffice"}}


def made(
    equation=None,
    starts=df.Normal(0.0, 1.0),  # noqa: B008
    params=None,
    time=0.0,
    horizon=1.0,
    preset="quick",
    key=0,
    machine=None,
    **settings,
):
    equation = equation or (sde() if params is None else family())
    problem = problem_for(equation, starts, horizon, params, time)
    chosen = settings_for(preset, **{"samples": 64, **settings})
    further = {"preset": preset, "horizon": horizon, "reach": horizon, "parameters": 100}
    further["starts"] = "given"
    plan = plan_of(chosen, **further, **(machine or ONE_DEVICE))
    return identity(problem, plan, jr.key(key))


CHANGES = {
    "drift": ({"equation": sde(1.0001)}, "`sde`: .* its `drift` was"),
    "drift by little": ({"equation": sde(1 + 1e-7)}, "`sde`: .* its `drift` was"),
    "diffusion": ({"equation": sde(noise=0.4)}, "`sde`: .* its `diffusion` was"),
    "noise columns": (
        {"equation": df.SDE(lambda t, x: -x, lambda t, x: jnp.ones((1, 2)), 1)},
        "`sde.noise_dim`, which was 1 and is now 2",
    ),
    "domain": (
        {"equation": sde(domain=df.Interval(-30.0, 30.0))},
        "`sde.domain`, which was .*Real.*Interval",
    ),
    "start law": ({"starts": df.Normal(0.0, 2.0)}, "`starts.std`, which was .*1.* and is now .*2"),
    "kind of law": ({"starts": df.Uniform(-1, 1)}, "`starts.law`, which was Normal"),
    "start time": ({"time": 0.5}, "`start_time`, which was 0.0 and is now 0.5"),
    "start times": ({"time": df.Uniform(0, 1)}, "`start_times`"),
    "parameters": ({"params": RATE}, r"`sde.params`, which was \[\]"),
    "horizon": ({"horizon": 2.0}, "`plan.horizon`, which was 1.0 and is now 2.0"),
    "preset": ({"preset": "accurate", "tolerance": 1.5e-2}, "`plan.preset`, which was quick"),
    "tolerance": ({"tolerance": 1e-3}, "`plan.tolerance`, which was 0.015 and is now 0.001"),
    "layers": ({"layers": 6}, "`plan.layers`"),
    "allowance": ({"allowance": float("inf")}, "`plan.allowance`.*is now Infinity"),
    "seed": ({"key": 1}, "`key`"),
}


@pytest.mark.parametrize("changes, message", CHANGES.values(), ids=CHANGES)
def test_each_change_makes_another_run(changes, message):
    found = made().differences(made(**changes))
    assert found
    assert any(_matches(message, text) for text in found), found


def _matches(pattern, text):
    import re

    return re.search(pattern, text) is not None


def test_laws_and_coefficients_of_families_are_compared():
    run = made(params=RATE)
    assert not run.differences(made(params=dict(RATE)))
    assert "`params`" in run.differences(made(params={"rate": df.Uniform(1, 5)}))[0]
    assert "drift" in run.differences(made(equation=family(power=3), params=RATE))[0]


def test_the_same_run_is_recognised_when_written_anew():
    run = made()
    assert not run.differences(made(equation=sde()))
    # Limits decide where a run stops, not what it computes.
    assert not run.differences(made(max_steps=3, max_seconds=1.0))
    # Devices, and rows held at once, change results by rounding only.
    assert not run.differences(made(machine=TWO_DEVICES))
    assert not run.differences(Identity(run.description, run.fingerprint))


def test_rounding_makes_no_other_run():
    # As another version may compute the same coefficients.
    run = made()
    tables = {name: table * (1 + 1e-14) for name, table in vars(run.fingerprint).items()}
    assert not run.differences(Identity(run.description, Fingerprint(**tables)))
    assert np.isfinite(run.fingerprint.drift).all()
