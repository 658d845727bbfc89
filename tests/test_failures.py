"""Equations and settings that a training cannot manage: how they end, and that remedies help.

Each ends in a status, with a density that answers up to the time it reached; none in an exception
of another library.
"""

import hashlib
import json
import subprocess
import sys

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import diracflow as df

SMALL = {"preset": "quick", "layers": 2, "hidden": 2, "bumps": 2, "samples": 256, "certify": False}
SMALL |= {"tolerance": 0.05}
LAW = df.Normal(0.0, 0.5)


def unit(t, x):
    return jnp.eye(1)


def ended(drift, diffusion=unit, starts=LAW, horizon=1.0, **changes):
    """The density that a training leaves, however it ends."""
    try:
        return df.learn(
            df.SDE(drift, diffusion, 1), starts, horizon, key=jr.key(0), **SMALL | changes
        )
    except df.TrainingFailed as failure:
        return failure.density


def answers(density):
    """Whether samples and log-densities are finite at all times that the density claims."""
    x0 = density.starts.sample(jr.key(1), (16, 1))
    times = density.horizon * jnp.array([1e-3, 0.1, 0.5, 1.0])
    x = density.sample(jr.key(2), times, x0)
    return bool(np.isfinite(x).all() and np.isfinite(density.log_prob(x, times, x0)).all())


@pytest.mark.slow
def test_paths_that_explode_are_named_and_shorter_horizons_help():
    failed = ended(lambda t, x: x**3, starts=df.Normal(0.0, 2.0))
    assert failed.status is df.Status.EXPLODING
    assert failed.horizon < 1
    assert failed.horizon == 0 or answers(failed)
    # As the status says: a shorter horizon, a narrower law.
    assert "`horizon`" in failed.status.value
    assert "start law" in failed.status.value
    finished = ended(lambda t, x: x**3, starts=df.Normal(0.0, 0.2), horizon=0.1)
    assert finished.status is df.Status.FINISHED
    assert answers(finished)


@pytest.mark.slow
def test_a_drift_that_is_unknown_far_out_needs_a_continuation():
    # NaN beyond 2, which paths from the law reach.
    failed = ended(lambda t, x: jnp.where(jnp.abs(x) > 2, jnp.nan, jnp.tanh(x)))
    assert failed.status is df.Status.NOT_FINITE
    assert failed.horizon == 0 or answers(failed)
    assert "finite" in failed.status.value
    finished = ended(lambda t, x: jnp.tanh(jnp.clip(x, -2, 2)))
    assert finished.status is df.Status.FINISHED


@pytest.mark.slow
def test_a_tolerance_below_rounding_can_be_raised():
    failed = ended(lambda t, x: jnp.tanh(x), tolerance=1e-40)
    assert failed.status is df.Status.STIFF
    assert "Raise `tolerance`" in failed.status.value
    assert ended(lambda t, x: jnp.tanh(x)).status is df.Status.FINISHED


@pytest.mark.slow
def test_limits_of_steps_can_be_raised():
    with pytest.warns(UserWarning, match="STEP_LIMIT|max_steps"):
        stopped = ended(lambda t, x: jnp.tanh(x), max_steps=3)
    assert stopped.status is df.Status.STEP_LIMIT
    assert 0 < stopped.horizon < 1
    assert answers(stopped)
    assert ended(lambda t, x: jnp.tanh(x)).status is df.Status.FINISHED


# What may be odd about an equation: drift, diffusion, start law, horizon.
ODD = {
    "discontinuous": (lambda t, x: -jnp.sign(x), unit, LAW, 1.0),
    "noise that nearly vanishes": (
        lambda t, x: -x,
        lambda t, x: jnp.exp(-(x**2))[:, None],
        df.Normal(0.0, 1.0),
        1.0,
    ),
    "noise gone for a while": (
        lambda t, x: jnp.tanh(x),
        lambda t, x: jnp.where((t > 0.4) & (t < 0.8), 0.0, 1.0) * jnp.eye(1),
        LAW,
        1.0,
    ),
    "noise unknown for a while": (
        lambda t, x: jnp.tanh(x),
        lambda t, x: jnp.where((t > 0.4) & (t < 0.8), jnp.nan, 1.0) * jnp.eye(1),
        LAW,
        1.0,
    ),
    "large units": (
        lambda t, x: 1e8 * jnp.tanh(x / 1e8),
        lambda t, x: 1e8 * jnp.eye(1),
        df.Normal(0.0, 1e8),
        1.0,
    ),
    "small units": (
        lambda t, x: 1e-8 * jnp.tanh(x / 1e-8),
        lambda t, x: 1e-8 * jnp.eye(1),
        df.Normal(0.0, 1e-8),
        1.0,
    ),
    "far from zero": (lambda t, x: jnp.tanh(x - 1e8), unit, df.Normal(1e8, 1.0), 1.0),
    "too long": (lambda t, x: jnp.sin(3 * x), unit, LAW, 1e4),
    "growth beyond float64": (lambda t, x: 50 * x, unit, LAW, 20.0),
    "stiff beyond measure": (lambda t, x: -1e6 * x, unit, LAW, 20.0),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Training stopped")
@pytest.mark.parametrize("case", ODD.values(), ids=ODD)
def test_odd_equations_end_in_a_status_and_answer_up_to_it(case):
    density = ended(*case, max_steps=40)
    assert density.horizon <= case[3]
    assert density.horizon == 0 or answers(density)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Training stopped")
@pytest.mark.parametrize("samples", [2, 16])
def test_few_samples_end_in_a_status(samples):
    density = ended(lambda t, x: jnp.tanh(x), samples=samples, max_steps=40)
    assert density.horizon == 0 or answers(density)
    assert ended(lambda t, x: jnp.tanh(x), samples=512).status is df.Status.FINISHED


REFUSED = {
    "no noise": ({"diffusion": lambda t, x: jnp.zeros((1, 1))}, "Noise must reach every component"),
    "noise beyond float64": ({"diffusion": lambda t, x: 1e-200 * jnp.eye(1)}, "too small for floa"),
    "drift beyond float64": ({"drift": lambda t, x: 1e200 * jnp.tanh(x)}, "not finite at one sta"),
    "narrow": ({"starts": df.Normal(0.0, 1e-170)}, "too narrow or too wide"),
    "wide": ({"starts": df.Normal(0.0, 1e170)}, "too narrow or too wide"),
}


@pytest.mark.parametrize("changes, message", REFUSED.values(), ids=REFUSED)
def test_what_has_no_density_in_float64_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        ended(**{"drift": lambda t, x: -x, **changes})


OWN = """
import jax.numpy as jnp
import diracflow as df
sde = df.SDE(lambda t, x: x**3, lambda t, x: jnp.eye(1), 1)
"""


@pytest.mark.slow
def test_the_command_line_keeps_what_a_failed_training_reached(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    options = {name: value for name, value in SMALL.items() if name not in ("preset", "certify")}
    law = '{"law": "Normal", "mean": 0, "std": 2}'
    result = subprocess.run(
        [
            *(sys.executable, "-m", "diracflow.cli", "learn", "own.py:sde", "--preset", "quick"),
            *("--starts", law, "--horizon", "1", "--json"),
            *(f"--set={name}={value}" for name, value in options.items()),
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert result.returncode == 1, result.stderr
    report = json.loads(result.stdout)
    assert report["status"] == "EXPLODING"
    assert "horizon" in report["message"]
    sde = df.SDE(lambda t, x: x**3, lambda t, x: jnp.eye(1), 1)
    density = df.load(tmp_path / "partial-model.dflow", sde=sde)
    assert density.horizon == report["horizon"]


LEARN = """
import hashlib, warnings, jax
import diracflow as df
model = df.models.benes(dim=1)
warnings.simplefilter("ignore")
density = df.learn(model.sde, model.starts, 0.1, key=jax.random.key(3), preset="quick", hidden=2,
                   layers=2, samples=128, certify=False, max_steps=4)
print(hashlib.sha256(density.trajectory.thetas.tobytes()).hexdigest())
"""


@pytest.mark.slow
def test_equal_seeds_give_equal_bytes_in_different_processes():
    found = {
        subprocess.run(
            [sys.executable, "-c", LEARN], capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    }
    assert len(found) == 1
    assert len(found.pop().strip()) == 2 * hashlib.sha256().digest_size
