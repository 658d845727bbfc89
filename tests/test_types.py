"""Type checkers see the public names as they are: a user's mistakes are found before a run."""

import subprocess
import sys

GOOD = """
import jax
import jax.numpy as jnp
import diracflow as df
from diracflow import TransitionDensity, learn

sde = df.SDE(drift=lambda t, x: -x, diffusion=lambda t, x: jnp.eye(1), dim=1)
density = learn(sde, df.Normal(0.0, 1.0), 1.0, key=jax.random.key(0), preset="quick", hidden=4)
same = learn(0, sde, df.Normal(0.0, 1.0), horizon=1.0, preset="quick", hidden=4)
value: jax.Array = density.log_prob(jnp.zeros(1), 0.5, jnp.zeros(1))
plan: df.Plan = df.plan(sde, df.Normal(0.0, 1.0), 1.0)
layers: int = plan.layers
model: df.models.Model = df.models.benes()
"""
# Each line misuses the interface in one way.
BAD = (
    "df.learn(1, 2, 3, key=jax.random.key(0))",
    'df.learn(sde, df.Normal(0.0, 1.0), "long", key=jax.random.key(0))',
    "df.learn(sde, df.Normal(0.0, 1.0), 1.0, key=jax.random.key(0), hiden=4)",
    "df.learn(sde, df.Normal(0.0, 1.0), 1.0)",
    "df.learn(0, sde, df.Normal(0.0, 1.0), 1.0, hiden=4)",
    "df.learn(0, sde, df.Normal(0.0, 1.0), 1.0, key=0)",
    "density.log_probability(jnp.zeros(1), 0.5, jnp.zeros(1))",
    "df.no_such_name",
    "df.bridge(jax.random.key(0), sde)",
    "layers: str = df.plan(sde, df.Normal(0.0, 1.0), 1.0).layers",
)


def errors(program, tmp_path):
    path = tmp_path / "user.py"
    path.write_text(program)
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache"), str(path)]
    found = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    return [line for line in found.stdout.splitlines() if ": error:" in line]


def test_a_type_checker_finds_each_misuse_and_no_other(tmp_path):
    program = GOOD + "\n".join(BAD) + "\n"
    first = GOOD.count("\n") + 1
    lines = {int(line.split(":")[1]) for line in errors(program, tmp_path)}
    assert lines == set(range(first, first + len(BAD)))
