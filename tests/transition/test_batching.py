"""Queries of many rows: shared among devices, and watched."""

import json
import os
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

import diracflow as df
from diracflow.transition import batching

_TWO_DEVICES = """
import json
import jax, jax.numpy as jnp, jax.random as jr, numpy as np
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
import diracflow as df
from diracflow.transition import batching
batching.MANY = 8
exact, key = df.models.benes().exact, jr.key(0)
one, two = jax.devices()
x, times = jr.normal(jr.key(1), (1001, 2)), jr.uniform(jr.key(2), (1001,)) + 0.1
zero = jnp.zeros(2)
few, some = x[:37], times[:37]
queries = {
    "odd": lambda: exact.log_prob(x, 0.5, zero),
    "starts": lambda: exact.log_prob(x, 0.5, x[::-1]),
    "times": lambda: exact.log_prob(x, times, zero),
    "outer": lambda: exact.log_prob(few[:, None], some[:5], zero),
    "inner": lambda: exact.log_prob(few[:5, None], some, zero),
    "score": lambda: exact.score(x, 0.5, zero),
    "sample": lambda: exact.sample(key, 0.5, zero, 1001),
}
shares, shared = [], batching._divided
batching._divided = lambda *arguments: shares.append(1) or shared(*arguments)

def error(query):
    shares.clear()
    values = query()
    assert shares, "not shared"
    with jax.default_device(one):
        expected = query()
    assert values.shape == expected.shape
    assert values.devices() == {one}
    assert not values.committed  # as without sharing
    return float(np.max(np.abs(values - expected)))

found = {name: error(query) for name, query in queries.items()}
within = jax.jit(lambda c: c * exact.log_prob(np.asarray(x), 0.5, np.zeros(2)))(2.0)
found["within jit"] = float(np.max(np.abs(within - 2 * queries["odd"]())))
placed = exact.log_prob(jax.device_put(x, two), 0.5, zero)
assert placed.devices() == {two}, "an array's own device is the user's choice"
batching.ROWS = 100
found["small pieces"] = error(queries["starts"])
print(json.dumps(found))
"""


def test_devices_share_rows_and_find_the_same():
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
    done = subprocess.run(
        [sys.executable, "-c", _TWO_DEVICES],
        capture_output=True,
        text=True,
        env=dict(os.environ) | {"PYTHONPATH": ":".join(sys.path), "XLA_FLAGS": flags.strip()},
    )
    assert done.returncode == 0, done.stderr
    # The same operations on each row; vectors of other lengths may round the last digit otherwise.
    assert {name: error for name, error in json.loads(done.stdout).items() if error > 1e-13} == {}


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr(batching, "ROWS", 40)


def test_every_piece_is_told_of(small_pieces):
    exact, told = df.models.brownian(1).exact, []
    with batching.observed(lambda done, rows: told.append((done, rows))):
        exact.log_prob(jnp.zeros((100, 1)), 0.5, jnp.zeros(1))
    assert told == [(34, 100), (68, 100), (100, 100)]
    exact.log_prob(jnp.zeros((100, 1)), 0.5, jnp.zeros(1))
    assert len(told) == 3


def test_what_is_one_piece_is_not(small_pieces):
    told = []
    with batching.observed(lambda *rows: told.append(rows)):
        df.models.brownian(1).exact.log_prob(jnp.zeros((40, 1)), 0.5, jnp.zeros(1))
    assert told == []


def test_progress_is_drawn_and_changes_nothing(small_pieces, capsys):
    exact, x = df.models.brownian(1).exact, jnp.linspace(-1.0, 1.0, 100)[:, None]
    plain = exact.log_prob(x, 0.5, jnp.zeros(1))
    with df.query_progress():
        shown = exact.log_prob(x, 0.5, jnp.zeros(1))
    np.testing.assert_array_equal(plain, shown)
    assert "100 of 100 rows" in capsys.readouterr().err
