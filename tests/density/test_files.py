import errno
import json
import os
import stat

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from safetensors import safe_open

import diracflow as df
from diracflow.density.model_file import FORMAT, read_header
from diracflow.models.catalogue import Model
from diracflow.source.gaussian_source import AbstractGaussianSource, EulerSource
from helpers import stepped_density

X0 = np.array([0.4, -0.3])


@pytest.fixture(scope="module")
def density():
    return stepped_density(df.models.benes(), source="euler")


@pytest.fixture
def saved(density, tmp_path):
    path = tmp_path / "model.dflow"
    density.save(path)
    return path


def test_round_trip_is_exact(density, saved):
    again = df.load(saved)
    x, t = X0 + 0.1, np.array([1e-6, 0.01, 0.2, 0.5])
    np.testing.assert_array_equal(again.log_prob(x, t, X0), density.log_prob(x, t, X0))
    np.testing.assert_array_equal(
        again.sample(jr.key(1), 0.2, X0, (5,)), density.sample(jr.key(1), 0.2, X0, (5,))
    )
    assert again.provenance.plan == density.provenance.plan
    assert again.provenance.history == density.provenance.history
    assert again.status is density.status
    assert again.horizon == density.horizon


def test_header_is_plain_json(saved):
    header = read_header(saved)
    assert header["sde"]["model"] == "benes"
    assert json.loads(json.dumps(header)) == header


def test_files_are_safetensors(density, saved):
    with safe_open(saved, framework="numpy") as file:
        np.testing.assert_array_equal(
            file.get_tensor("density.trajectory.thetas"), density.trajectory.thetas
        )
        assert json.loads(file.metadata()["diracflow"])["format"] == FORMAT


def test_observations_that_are_not_finite_survive(density, tmp_path):
    strange = [{"t": 0.1, "start": "edge", "bound": 1.0, "stderr": value} for value in (np.inf,)]
    density.with_provenance(certificate=tuple(strange), seconds=np.nan).save(tmp_path / "m.dflow")
    assert b"NaN" not in (tmp_path / "m.dflow").read_bytes().replace(b'\\"NaN\\"', b"")
    again = df.load(tmp_path / "m.dflow").provenance
    assert again.certificate[0]["stderr"] == np.inf
    assert np.isnan(again.seconds)
    assert np.isnan(read_header(tmp_path / "m.dflow")["seconds"])


def own_sde(rate=1.0, noise=1.0):
    return df.SDE(lambda t, x: -rate * x, lambda t, x: noise * jnp.eye(2), 2)


def test_users_sde_is_passed_again_and_compared(tmp_path):
    own = stepped_density(Model("own", own_sde(), df.Normal(0.0, 1.0), 1.0, None), source="euler")
    path = tmp_path / "own.dflow"
    own.save(path)
    assert df.load(path, sde=own_sde()).horizon == own.horizon
    with pytest.raises(df.ModelFileError, match="Pass it"):
        df.load(path)
    with pytest.raises(df.ModelFileError, match=r"another SDE: .* its `drift` was"):
        df.load(path, sde=own_sde(1.1))
    with pytest.raises(ValueError, match="must be a `diracflow.SDE`; got Model"):
        df.load(path, sde=df.models.brownian(2))
    with pytest.raises(df.ModelFileError, match="2 components and 2 noise columns; got 3"):
        df.load(path, sde=df.models.brownian(3).sde)


def test_small_coefficients_are_told_apart(tmp_path):
    """One and a half times a noise of 1e-7 is another noise, small as their difference may be."""
    sde = own_sde(1e-7, 1e-7)
    tiny = Model("tiny", sde, df.Normal(0.0, 1.0), 1.0, None)
    stepped_density(tiny, source="euler").save(tmp_path / "tiny.dflow")
    df.load(tmp_path / "tiny.dflow", sde=sde)
    for other in (own_sde(1e-7, 1.5e-7), own_sde(1.5e-7, 1e-7)):
        with pytest.raises(df.ModelFileError, match="another SDE"):
            df.load(tmp_path / "tiny.dflow", sde=other)


def test_coefficients_without_value_are_compared_too(tmp_path):
    def halted(end):  # a drift that has no value after some time
        drift = lambda t, x: jnp.where(t < end, -x, jnp.nan)
        return df.SDE(drift, lambda t, x: jnp.eye(2), 2)

    model = Model("halted", halted(0.3), df.Normal(0.0, 1.0), 1.0, None)
    stepped_density(model, source="euler").save(tmp_path / "halted.dflow")
    df.load(tmp_path / "halted.dflow", sde=halted(0.3))
    for other in (own_sde(), halted(0.1)):
        with pytest.raises(df.ModelFileError, match="another SDE"):
            df.load(tmp_path / "halted.dflow", sde=other)


def test_absent_files_are_not_found(tmp_path):
    with pytest.raises(FileNotFoundError, match="No model file at"):
        df.load(tmp_path / "absent.dflow")


def test_newer_formats_are_refused(saved, monkeypatch):
    monkeypatch.setattr("diracflow.density.model_file.FORMAT", 0)
    with pytest.raises(df.ModelFileError, match=f"format {FORMAT}.*reads format 0. Upgrade"):
        df.load(saved)


def test_large_files_are_refused_unless_allowed(saved):
    size = saved.stat().st_size
    with pytest.raises(df.ModelFileError, match=f"has {size} bytes; at most {size - 1}.*max_bytes"):
        df.load(saved, max_bytes=size - 1)
    assert df.load(saved, max_bytes=size).horizon == 0.5


class Shifted(AbstractGaussianSource):
    """A source of the user's own, which wraps another."""

    sde: df.SDE
    inner: EulerSource
    start_time: float | None = eqx.field(static=True)

    def frame(self, tau, x0):
        return self.inner.frame(tau, x0)


def test_classes_of_the_user_are_passed_again(density, tmp_path):
    source = density.ansatz.source
    own = Shifted(source.sde, source, source.start_time)
    path = tmp_path / "own.dflow"
    eqx.tree_at(lambda d: d.ansatz.source, density, own).save(path)
    assert isinstance(df.load(path, classes=[Shifted]).ansatz.source, Shifted)
    with pytest.raises(df.ModelFileError, match=r"'Shifted' that is not known.*\[Shifted\]"):
        df.load(path)
    assert read_header(path)["start_time"] == 0.0
    with pytest.raises(ValueError, match="module or dataclass types; got 3"):
        df.load(path, classes=[3])


def test_what_files_cannot_hold_is_named(density, tmp_path):
    source = density.ansatz.source
    own = Shifted(source.sde, jnp.tanh, source.start_time)
    changed = eqx.tree_at(lambda d: d.ansatz.source, density, own)
    with pytest.raises(ValueError, match=r"`density.ansatz.source.inner`.*cannot hold"):
        changed.save(tmp_path / "own.dflow")
    assert not (tmp_path / "own.dflow").exists()


@pytest.mark.parametrize(
    "model, settings",
    [
        (df.models.heston(), {"source": "moments"}),
        (df.models.benes(dim=3), {"basis": "separated", "networks": "own", "source": "euler"}),
        (df.models.benes(), {"flow": "affine", "masks": "fixed", "source": "euler"}),
    ],
    ids=["charted", "rotated", "affine"],
)
def test_every_array_comes_back(model, settings, tmp_path):
    saved = stepped_density(model, **settings)
    saved.save(tmp_path / "model.dflow")
    again = df.load(tmp_path / "model.dflow")
    for name in ("ansatz", "trajectory", "scope", "chart"):
        assert eqx.tree_equal(getattr(saved, name), getattr(again, name)), name


def test_new_files_are_as_readable_as_others(saved, tmp_path):
    (tmp_path / "other").write_text("")
    assert saved.stat().st_mode == (tmp_path / "other").stat().st_mode


def test_replaced_files_keep_their_permissions(density, saved):
    saved.chmod(0o600)
    density.save(saved)
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600


def test_links_stay_links(density, saved, tmp_path):
    link = tmp_path / "link.dflow"
    link.symlink_to(saved)
    saved.unlink()
    density.save(link)
    assert link.is_symlink()
    assert saved.is_file()


@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
def test_a_failed_write_keeps_the_old_file(density, saved, monkeypatch, step, number):
    before = saved.read_bytes()

    def failing(*args, **kwargs):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, {"write": "fdopen"}.get(step, step), failing)
    with pytest.raises(OSError, match=f"{os.strerror(number)}.*unchanged") as caught:
        density.save(saved)
    assert caught.value.errno == number
    assert saved.read_bytes() == before
    assert [p.name for p in saved.parent.iterdir()] == ["model.dflow"]


def test_an_interrupted_write_leaves_nothing(density, saved, monkeypatch):
    before = saved.read_bytes()

    def interrupted(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        density.save(saved)
    assert saved.read_bytes() == before
    assert [p.name for p in saved.parent.iterdir()] == ["model.dflow"]


def test_places_that_cannot_be_written_are_named(density, tmp_path):
    with pytest.raises(FileNotFoundError, match="no directory .*nowhere. Make it"):
        density.save(tmp_path / "nowhere" / "model.dflow")
    with pytest.raises(OSError, match="something else than a file"):
        density.save(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="something else than a file"):
        density.save(tmp_path / "pipe")
    (tmp_path / "file").write_text("")
    with pytest.raises(FileNotFoundError, match="no directory"):
        density.save(tmp_path / "file" / "model.dflow")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_directories_are_named(density, saved):
    before = saved.read_bytes()
    saved.parent.chmod(0o500)
    try:
        with pytest.raises(PermissionError, match="cannot be written.*unchanged"):
            density.save(saved)
        assert saved.read_bytes() == before
    finally:
        saved.parent.chmod(0o700)
