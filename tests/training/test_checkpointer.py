"""What stays in the directory of a run, whatever happens. Without a training."""

import errno
import os
import signal
import threading

import numpy as np
import pytest

import diracflow as df
from diracflow.sde.fingerprint import Fingerprint
from diracflow.training.checkpoint_file import (
    Contents,
    encoded,
    holds_checkpoint,
    opened,
    read,
)
from diracflow.training.checkpointer import Checkpointer, checkpointer_in
from diracflow.training.multiprocess import ProcessGroup
from diracflow.training.run_identity import Identity
from diracflow.training.state import State
from helpers import RECORD, state_tables

PROBES = Fingerprint(np.arange(3.0), *[np.ones((3, 1))] * 2, np.ones((3, 1, 1)))
RUN = Identity({"horizon": 1.0}, PROBES)
TABLE = ({"bound": 0.1, "stderr": np.inf, "x0": [0.5]},)


class Stop(Exception):
    """What ends a run."""


class Walk:
    """Stands for a loop: a path whose parameters are the numbers of the steps."""

    def __init__(self):
        self.steps, self.restored = 0, None

    def state(self):
        rows = tuple(np.full(4, float(k)) for k in range(self.steps + 1))
        clocks = tuple(float(k) for k in range(self.steps + 1))
        values = {"length": 0.1, "velocity": np.ones(4), "residual": np.nan, "short_steps": 3}
        return State(clocks, rows, rows[1:], rows[1:], (RECORD,) * self.steps, 1.5, values)

    def restore(self, state):
        self.restored, self.steps = state, len(state.history)


def walked(folder, until, stop=None, identity=RUN):
    """Resume a walk and go on to some step; returns how many steps it began with."""
    walk = Walk()
    with checkpointer_in(folder) as checkpointer:
        checkpointer.resume(lambda: identity, walk)
        began = walk.steps
        with checkpointer.following():
            while walk.steps < until:
                walk.steps += 1
                checkpointer.step(walk)
            if stop:
                stop()
    return began


def fail():
    raise Stop


def names(folder, start="checkpoint-"):
    return sorted(path.name for path in folder.iterdir() if path.name.startswith(start))


def numbered(*steps):
    return [f"checkpoint-{k:06d}.safetensors" for k in steps]


@pytest.fixture(autouse=True)
def _checkpoints_after_every_step(monkeypatch):
    monkeypatch.setattr("diracflow.training.checkpointer._SPACING", 0)


def states(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".lock"}


def test_a_state_comes_back_to_the_last_bit(tmp_path):
    walk = Walk()
    walk.steps = 3
    state = walk.state()
    path = tmp_path / "file"
    path.write_bytes(encoded(Contents(RUN, state, {"jax": "1"}, TABLE)))
    found = read(path)
    assert found.identity.description == RUN.description
    assert found.certificate == TABLE
    assert np.isnan(found.state.carried["residual"])
    assert type(found.state.carried["short_steps"]) is int
    assert state_tables(found.state) == state_tables(state)


class Relay(ProcessGroup):
    """Stands for the group of a second process: it receives what the first one has sent."""

    first = False

    def __init__(self):
        self.sent = []

    def broadcast(self, make):
        return self.sent.pop(0)


def test_another_process_resumes_where_the_first_does(tmp_path):
    walked(tmp_path, 2)
    first, second, relay = Walk(), Walk(), Relay()
    group = ProcessGroup()
    group.broadcast = lambda make: relay.sent.append(make())
    with checkpointer_in(tmp_path, group) as writer:
        writer.resume(lambda: RUN, first)
        with checkpointer_in(tmp_path, relay) as follower:
            follower.resume(lambda: RUN, second)
    assert state_tables(second.restored) == state_tables(first.restored)
    relay.sent += [b"", b""]  # no checkpoint
    with checkpointer_in(tmp_path, relay) as follower:
        follower.resume(lambda: RUN, Walk())
        assert follower.certificate is None


def test_the_last_two_are_kept(tmp_path):
    assert not holds_checkpoint(tmp_path)
    assert walked(tmp_path / "deep" / "run", 5) == 0
    assert names(tmp_path / "deep" / "run") == numbered(4, 5)
    assert holds_checkpoint(tmp_path / "deep" / "run")
    assert walked(tmp_path / "deep" / "run", 7) == 5


def test_checkpoints_take_a_small_share_of_the_time(tmp_path, monkeypatch):
    # The clock runs by one second a step, and writing takes half of one.
    now = [0.0]
    monkeypatch.setattr("diracflow.training.checkpointer._SPACING", 50)
    monkeypatch.setattr("diracflow.training.checkpointer.time.monotonic", lambda: now[0])
    written, walk = [], Walk()
    with opened(tmp_path) as folder:
        checkpointer = Checkpointer(folder, ProcessGroup())
        checkpointer.resume(lambda: RUN, walk)

        def write(contents):
            now[0] += 0.5
            written.append(len(contents.state.history))

        folder.write = write
        for _ in range(100):
            now[0] += 1.0
            walk.steps += 1
            checkpointer.step(walk)
    assert written == [1, 26, 51, 76]


@pytest.mark.parametrize("content", [None, b"", b"PK\x03\x04 not ours", 0.5, 0.999], ids=str)
def test_the_one_before_stands_in_for_a_damaged_one(content, tmp_path):
    walked(tmp_path, 5)
    newest = tmp_path / "checkpoint-000005.safetensors"
    whole = newest.read_bytes()
    flipped = bytearray(whole)
    flipped[-9] ^= 1
    torn = whole[: int(len(whole) * content)] if isinstance(content, float) else content
    newest.write_bytes(flipped if content is None else torn)
    with pytest.warns(df.CheckpointWarning, match="000005.*cannot be resumed from.*before it"):
        assert walked(tmp_path, 7) == 4
    assert names(tmp_path, "damaged") == ["damaged-checkpoint-000005.safetensors"]
    assert names(tmp_path) == numbered(6, 7)


def test_where_all_are_damaged_a_run_starts_afresh(tmp_path):
    walked(tmp_path, 5)
    for name in numbered(4, 5):
        (tmp_path / name).write_bytes(b"")
    with pytest.warns(df.CheckpointWarning, match="from the start"):
        assert walked(tmp_path, 1) == 0


def test_every_bit_counts(tmp_path):
    walked(tmp_path, 2)
    path = tmp_path / numbered(2)[0]
    content = path.read_bytes()
    with_warning = 0
    for place in np.linspace(0, len(content) - 1, 60, dtype=int):
        changed = bytearray(content)
        changed[place] ^= 4
        path.write_bytes(changed)
        try:
            found = read(path)
        except Exception as error:
            with_warning += type(error).__name__ in ("Damaged", "CheckpointError")
        else:  # white space in the list of arrays means nothing
            assert encoded(found) == content
            with_warning += 1
    assert with_warning == 60


def test_failing_between_write_and_rename_leaves_the_earlier_ones(tmp_path, monkeypatch):
    walked(tmp_path, 3)
    before = states(tmp_path)
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda source, target: fail())
    with pytest.raises(Stop):
        walked(tmp_path, 5)
    assert states(tmp_path) == before
    monkeypatch.setattr(os, "replace", replace)
    assert walked(tmp_path, 5) == 3


def test_what_a_killed_process_was_writing_is_swept_up(tmp_path):
    walked(tmp_path, 2)
    (tmp_path / ".checkpoint-000003.safetensors.x7f").write_bytes(b"half")
    (tmp_path / ".other").write_bytes(b"")
    assert walked(tmp_path, 2) == 2
    assert names(tmp_path, ".") == [".other"]


def test_a_full_disk_stops_nothing(tmp_path, monkeypatch):
    walked(tmp_path, 2)
    before = states(tmp_path)

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    sync = os.fsync
    monkeypatch.setattr(os, "fsync", full)
    with pytest.warns(df.CheckpointWarning, match="No space left.*continues.*2 steps") as caught:
        walked(tmp_path, 6)
    assert len(caught) == 1
    assert states(tmp_path) == before
    # Once there is room, it is used.
    monkeypatch.setattr(os, "fsync", sync)
    assert walked(tmp_path, 3) == 2
    assert names(tmp_path) == numbered(2, 3)


def test_a_directory_that_cannot_be_written_is_refused_at_once(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.write_text("")
    for path in (file, file / "below"):
        with pytest.raises(df.CheckpointError, match="cannot be written to.*is writable"):
            walked(path, 1)

    def denied(*arguments, **options):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("diracflow.training.checkpoint_file.tempfile.TemporaryFile", denied)
    with pytest.raises(df.CheckpointError, match="Read-only file system"):
        walked(tmp_path / "run", 1)
    for bad in (3, True, ""):
        with pytest.raises(ValueError, match="must be the path of a directory"):
            walked(bad, 1)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_without_permission_is_refused(tmp_path):
    walked(tmp_path, 1)
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(df.CheckpointError, match="Permission denied"):
            walked(tmp_path, 2)
    finally:
        tmp_path.chmod(0o755)


def test_two_runs_do_not_share_a_directory(tmp_path):
    with opened(tmp_path), pytest.raises(df.CheckpointError, match=f"process {os.getpid()} on"):
        walked(tmp_path, 1)
    assert walked(tmp_path, 1) == 0


def test_another_environment_is_told(tmp_path, monkeypatch):
    walked(tmp_path, 2)
    monkeypatch.setattr("diracflow.training.run_identity._threads", lambda: 77)
    with pytest.warns(df.CheckpointWarning, match="threads was .* and is 77"):
        assert walked(tmp_path, 3) == 2


def test_another_run_is_refused_and_stays(tmp_path):
    walked(tmp_path, 2)
    before = states(tmp_path)
    other = Identity({"horizon": 2.0}, PROBES)
    with pytest.raises(df.CheckpointError, match=r"`horizon`, which was 1.0.*delete this one"):
        walked(tmp_path, 3, identity=other)
    assert states(tmp_path) == before


def test_another_format_is_refused(tmp_path, monkeypatch):
    walked(tmp_path, 2)
    monkeypatch.setattr("diracflow.training.checkpoint_file.FORMAT", 0)
    with pytest.raises(df.CheckpointError, match="format 1; this diracflow reads format 0"):
        walked(tmp_path, 3)


def test_a_certificate_is_kept_with_the_end_only(tmp_path):
    walk, table = Walk(), ({"t": 0.5, "bound": 0.1},)
    with checkpointer_in(tmp_path) as checkpointer:
        checkpointer.resume(lambda: RUN, walk)
        walk.steps = 2
        checkpointer.step(walk)
        checkpointer.finish(table)
    with checkpointer_in(tmp_path) as checkpointer:
        checkpointer.resume(lambda: RUN, Walk())
        assert checkpointer.certificate == table
        walk.steps = 3  # a limit was raised
        checkpointer.step(walk)
        assert checkpointer.certificate is None


main_thread = pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals need the main thread"
)


@main_thread
@pytest.mark.parametrize(
    "number, reason",
    [(signal.SIGTERM, df.TrainingTerminated), (signal.SIGINT, KeyboardInterrupt)],
    ids=["SIGTERM", "SIGINT"],
)
def test_signals_keep_the_last_step(number, reason, tmp_path, monkeypatch):
    # Checkpoints are too far apart to hold the third step but for the signal.
    monkeypatch.setattr("diracflow.training.checkpointer._SPACING", 1e9)
    # A process in the background may have been started with SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(reason) as caught:
            walked(tmp_path, 3, lambda: os.kill(os.getpid(), number))
    finally:
        signal.signal(signal.SIGINT, before)
    assert caught.value.__notes__[-1].startswith(
        f"{tmp_path} has a checkpoint of 3 steps, up to t=0.25;"
    )
    assert names(tmp_path) == numbered(1, 3)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if number == signal.SIGTERM:
        assert caught.value.code == 143


@main_thread
def test_a_handler_of_the_users_own_stays(tmp_path):
    before = signal.signal(signal.SIGTERM, lambda number, frame: fail())
    try:
        with pytest.raises(Stop):
            walked(tmp_path, 2, lambda: os.kill(os.getpid(), signal.SIGTERM))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert names(tmp_path) == numbered(1, 2)


def test_what_ends_a_run_before_its_first_step_says_so(tmp_path):
    with pytest.raises(Stop) as caught:
        walked(tmp_path, 0, fail)
    assert caught.value.__notes__[-1].startswith("There is no checkpoint")
