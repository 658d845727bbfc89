import json
import os
import pickle

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from safetensors.numpy import save_file

import diracflow as df
from diracflow.density.files import read_header
from diracflow.density.header import FORMAT

X0 = np.array([0.4, -0.3])


@pytest.fixture
def saved(trained, tmp_path):
    path = tmp_path / "model.dflow"
    trained.save(path)
    return path


def test_round_trip_is_exact(trained, saved):
    again = df.load(saved)
    x, t = X0 + 0.1, np.array([1e-6, 0.01, 0.2, 0.3])
    np.testing.assert_array_equal(again.log_prob(x, t, X0), trained.log_prob(x, t, X0))
    np.testing.assert_array_equal(
        again.sample(jr.key(1), 0.2, X0, (5,)), trained.sample(jr.key(1), 0.2, X0, (5,))
    )
    assert again.facts.settings == trained.facts.settings
    assert again.facts.history == trained.facts.history
    assert again.status is trained.status
    assert again.horizon == trained.horizon


def test_header_is_plain_json(saved):
    header = read_header(saved)
    assert header["sde"]["model"] == "benes"
    assert json.loads(json.dumps(header)) == header


def own_sde(rate):
    return df.SDE(lambda t, x: -rate * x, lambda t, x: jnp.eye(2), 2)


@pytest.fixture(scope="module")
def own():
    return df.learn(
        own_sde(1.0), df.Normal(0.0, 1.0), 0.01, key=jr.key(0), layers=2, samples=64, tolerance=1e-2
    )


def test_users_sde_is_passed_again_and_compared(own, tmp_path):
    path = tmp_path / "own.dflow"
    own.save(path)
    again = df.load(path, sde=own_sde(1.0))
    np.testing.assert_array_equal(again.log_prob(X0, 0.01, X0), own.log_prob(X0, 0.01, X0))
    with pytest.raises(df.ModelFileError, match="Pass it"):
        df.load(path)
    with pytest.raises(df.ModelFileError, match=r"another SDE: at t=.*its `drift` was"):
        df.load(path, sde=own_sde(1.1))
    with pytest.raises(ValueError, match="must be a `diracflow.SDE`; got Model"):
        df.load(path, sde=df.models.brownian(2))
    with pytest.raises(df.ModelFileError, match="2 components and 2 noise columns; got 3"):
        df.load(path, sde=df.models.brownian(3).sde)


def test_truncated_files_are_refused(saved):
    content = saved.read_bytes()
    for size in (0, 5, 100, len(content) // 2, len(content) - 1):
        saved.write_bytes(content[:size])
        with pytest.raises(df.ModelFileError, match="not a complete diracflow file"):
            df.load(saved)


def test_flipped_bytes_are_noticed(saved):
    content = bytearray(saved.read_bytes())
    # Throughout the data part, and in the digits of the JSON header.
    length = int.from_bytes(content[:8], "little")
    places = [*np.linspace(8 + length, len(content) - 1, 20, dtype=int), content.find(b"horizon")]
    for place in places:
        changed = bytearray(content)
        changed[place] ^= 1
        saved.write_bytes(changed)
        with pytest.raises(df.ModelFileError):
            df.load(saved)


def test_foreign_files_are_refused(tmp_path):
    path = tmp_path / "foreign.dflow"
    save_file({"a": np.zeros(3)}, path)
    with pytest.raises(df.ModelFileError, match="not a diracflow file"):
        df.load(path)
    path.write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(df.ModelFileError):
        df.load(path)
    with pytest.raises(FileNotFoundError, match="There is no file"):
        df.load(tmp_path / "absent.dflow")


def test_newer_formats_are_refused(saved, monkeypatch):
    monkeypatch.setattr("diracflow.density.migration.FORMAT", 0)
    with pytest.raises(df.ModelFileError, match=f"format {FORMAT}.*up to 0.*Upgrade"):
        df.load(saved)


def test_files_are_as_readable_as_others(saved, tmp_path):
    (tmp_path / "other").write_text("")
    assert saved.stat().st_mode == (tmp_path / "other").stat().st_mode


def test_a_failed_write_keeps_the_old_file(trained, saved, monkeypatch):
    before = saved.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        trained.save(saved)
    assert saved.read_bytes() == before
    assert [p.name for p in saved.parent.iterdir()] == ["model.dflow"]
