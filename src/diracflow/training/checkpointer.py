"""Writing checkpoints during a training, and resuming from them.

SIGTERM becomes an exception, so that a run can write a checkpoint before its process ends.
"""

import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from types import FrameType
from typing import Any

from ..storage.signals import handling
from .checkpoint_file import (
    CheckpointError,
    CheckpointWarning,
    Contents,
    Folder,
    Table,
    decoded,
    encoded,
    opened,
)
from .loop import TimeLoop
from .multiprocess import ProcessGroup
from .run_identity import Identity, environment
from .state import State


class TrainingTerminated(SystemExit):
    """SIGTERM ended a training; uncaught, it ends the process with exit code 143."""

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGTERM)


@contextmanager
def terminable() -> Iterator[None]:
    """Raise `TrainingTerminated` on SIGTERM, once.

    A handler installed by the user stays in force. Outside the main thread, where Python handles
    no signals, the default action stays in force.
    """

    def terminate(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # while the checkpoint is written
        raise TrainingTerminated

    unhandled = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    with handling(terminate, *([signal.SIGTERM] if unhandled else [])):
        yield


# A checkpoint holds the whole path so far. The time between two checkpoints is this multiple of
# the time to write the last one, so that all of them take two per cent of a training of any length.
_SPACING = 50
# Folder of the checkpoints of a second training, within that of the first.
_FOLLOWING = "divided"


class NoCheckpointer:
    """Writes no checkpoints."""

    certificate: Table | None = None  # of the run that was resumed, if it had one

    def resume(self, run: Callable[[], Identity], loop: TimeLoop) -> None:
        """Restore a loop from the last checkpoint of the same run, if there is one."""

    def following(self) -> AbstractContextManager[None]:
        """Return a context at whose end, for any reason, a checkpoint is written."""
        return nullcontext()

    def step(self, loop: TimeLoop) -> None:
        """Note an accepted step."""

    def finish(self, certificate: Table) -> None:
        """Note the certificate at the end of a training."""

    def following_training(self) -> "AbstractContextManager[NoCheckpointer]":
        """Open the checkpoints of another training, which follows this one in the same run."""
        return nullcontext(self)


class Checkpointer(NoCheckpointer):
    """Writes checkpoints to an open directory, as the first of the processes of a training."""

    def __init__(self, folder: Folder, processes: ProcessGroup):
        self._folder, self._processes = folder, processes
        self._environment = environment()
        self._identity: Identity | None = None
        self._latest: State | None = None  # after the last accepted step
        self._written: State | None = None  # in the newest file
        self._next = 0.0  # time of the next checkpoint
        self._warned = False

    def resume(self, run: Callable[[], Identity], loop: TimeLoop) -> None:
        self._processes.broadcast(lambda: self._restore(run(), loop))

    def _restore(self, identity: Identity, loop: TimeLoop) -> bytes:
        """Restore a loop; return the checkpoint for the other processes, empty if there is none."""
        self._identity, found = identity, self._folder.newest()
        if found is None:
            return b""
        differences = found.identity.differences(identity)
        if differences:
            raise CheckpointError(
                f"{self._folder.path} has the checkpoint of another run. It differs in "
                f"{'; in '.join(differences)}. Give another directory, or delete this one to start "
                "again."
            )
        self._compare(found.environment)
        loop.restore(found.state)
        self._latest = self._written = found.state
        self.certificate = found.certificate
        return encoded(found)

    @contextmanager
    def following(self) -> Iterator[None]:
        try:
            with terminable():
                try:
                    yield
                finally:
                    self._write_latest()
        except BaseException as reason:
            reason.add_note(f"{self._standing()}; the same call resumes from there.")
            raise

    def step(self, loop: TimeLoop) -> None:
        self._latest, self.certificate = loop.state(), None
        if time.monotonic() >= self._next:
            self._write_latest()

    def finish(self, certificate: Table) -> None:
        """Write the certificate, too, so that it is not computed again."""
        if certificate and certificate != self.certificate and self._latest is not None:
            self.certificate = certificate
            self._write(self._latest)

    def following_training(self) -> AbstractContextManager[NoCheckpointer]:
        return checkpointer_in(self._folder.path / _FOLLOWING, self._processes)

    def _write_latest(self) -> None:
        if self._latest is not None and self._latest is not self._written:
            self._write(self._latest)

    def _write(self, state: State) -> None:
        assert self._identity is not None  # `resume` is called before the first step
        contents = Contents(self._identity, state, self._environment, self.certificate)
        began = time.monotonic()
        try:
            self._folder.write(contents)
            self._written = state
        except (OSError, MemoryError) as error:  # which must not end a training
            self._warn_once(getattr(error, "strerror", None) or str(error) or "out of memory")
        ended = time.monotonic()
        self._next = ended + _SPACING * (ended - began)

    def _warn_once(self, error: str) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"A checkpoint could not be written to {self._folder.path}: {error}. The training "
                f"continues and tries again later. {self._standing()}.",
                CheckpointWarning,
                stacklevel=8,
            )

    def _compare(self, before: Mapping[str, Any]) -> None:
        now = self._environment
        changes = [
            f"{name} was {before.get(name)!r} and is {value!r}"
            for name, value in now.items()
            if before.get(name) != value
        ]
        if changes:
            warnings.warn(
                f"The run in {self._folder.path} began in another environment: "
                f"{', '.join(changes)}. It resumes, but its result need not be bit-for-bit that of "
                "an uninterrupted run.",
                CheckpointWarning,
                stacklevel=7,
            )

    def _standing(self) -> str:
        if self._written is None:
            return f"There is no checkpoint in {self._folder.path} yet"
        steps, reached = len(self._written.history), self._written.history[-1].time
        return f"{self._folder.path} has a checkpoint of {steps} steps, up to t={reached:g}"


class Follower(NoCheckpointer):
    """Resumes where the first process does, which writes the checkpoints."""

    def __init__(self, processes: ProcessGroup):
        self._processes = processes

    def resume(self, run: Callable[[], Identity], loop: TimeLoop) -> None:
        message = self._processes.broadcast(bytes)
        if message:
            found = decoded(message)
            loop.restore(found.state)
            self.certificate = found.certificate

    def following(self) -> AbstractContextManager[None]:
        """Return a context in which SIGTERM ends this process as it ends the first."""
        return terminable()

    def following_training(self) -> AbstractContextManager[NoCheckpointer]:
        return checkpointer_in(_FOLLOWING, self._processes)


@contextmanager
def checkpointer_in(
    path: str | os.PathLike | None, processes: ProcessGroup | None = None
) -> Iterator[NoCheckpointer]:
    """Open a directory for checkpoints; of several processes the first one writes them."""
    processes = processes or ProcessGroup()
    if path is None:
        yield NoCheckpointer()
        return
    with ExitStack() as stack:
        folders: list[Folder] = []

        def enter() -> bytes:  # called in the first process only
            folders.append(stack.enter_context(opened(path)))
            return b""

        processes.broadcast(enter)
        yield Checkpointer(folders[0], processes) if folders else Follower(processes)
