"""When a run is kept, and how it is resumed."""

import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

from .checkpoint_errors import CheckpointError, CheckpointWarning
from .checkpoint_file import Contents, packed_state, unpacked
from .checkpoint_folder import Folder, opened
from .environment import environment
from .loop import TimeLoop
from .multiprocess import ProcessGroup
from .run_identity import Identity
from .state import State
from .termination import terminable

# A checkpoint holds the whole path so far. Between two of them there is so many times as long as
# the last one took: all of them together take two per cent of the time, however long the path.
_SPACING = 50


class NoKeeper:
    """Keeps nothing."""

    certificate: tuple[dict[str, Any], ...] | None = None

    def resume(self, run: Callable[[], Identity], loop: TimeLoop) -> None:
        """There is nothing to go on from."""

    def following(self) -> AbstractContextManager[None]:
        """Within this context the run is kept whatever ends it."""
        return nullcontext()

    def step(self, loop: TimeLoop) -> None:
        """Called after every accepted step."""

    def finish(self, certificate: tuple[dict[str, Any], ...]) -> None:
        """Called once, at the end."""


class Keeper(NoKeeper):
    """Keeps a run in a directory that is open."""

    def __init__(self, folder: Folder):
        self._folder = folder
        self._environment = environment()
        self._identity: Identity | None = None
        self._latest: State | None = None  # after the last accepted step
        self._kept: State | None = None  # of what is on the disk
        self._next = 0.0  # when the next may be written
        self._warned = False

    def resume(self, run: Callable[[], Identity], loop: TimeLoop) -> None:
        """Let a loop go on from the last checkpoint, if there is one of the same run."""
        self._identity, found = run(), self._folder.newest()
        if found is None:
            return
        differences = found.identity.differences(self._identity)
        if differences:
            raise CheckpointError(
                f"{self._folder.path} keeps another run. It differs in {'; in '.join(differences)}."
                " Give another directory, or delete this one to start afresh."
            )
        self._compare(found.environment)
        loop.restore(found.state)
        self._latest = self._kept = found.state
        self.certificate = found.certificate or None

    @contextmanager
    def following(self) -> Iterator[None]:
        """Within this context the run is kept whatever ends it."""
        try:
            with terminable():
                try:
                    yield
                finally:
                    self._write_latest()
        except BaseException as reason:
            standing = self._standing()
            text = standing[0].upper() + standing[1:]
            reason.add_note(f"{text}; the same call goes on from there.")
            raise

    def step(self, loop: TimeLoop) -> None:
        """Called after every accepted step."""
        self._latest, self.certificate = loop.state(), None
        if time.monotonic() >= self._next:
            self._write_latest()

    def finish(self, certificate: tuple[dict[str, Any], ...]) -> None:
        """Keep the certificate, too, so that it is not computed again."""
        if certificate and certificate != self.certificate and self._latest is not None:
            self.certificate = certificate
            self._write(self._latest)

    def _write_latest(self) -> None:
        if self._latest is not None and self._latest is not self._kept:
            self._write(self._latest)

    def _write(self, state: State) -> None:
        assert self._identity is not None  # a loop is resumed, or not, before it steps
        contents = Contents(self._identity, state, self._environment, self.certificate or ())
        began = time.monotonic()
        try:
            self._folder.write(contents)
            self._kept = state
        except (OSError, MemoryError) as error:  # a checkpoint is not worth a training
            self._warn_once(getattr(error, "strerror", None) or str(error) or "out of memory")
        ended = time.monotonic()
        self._next = ended + _SPACING * (ended - began)

    def _warn_once(self, error: str) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"A checkpoint could not be written to {self._folder.path}: "
                f"{error}. The training goes on, and tries again later; "
                f"{self._standing()}.",
                CheckpointWarning,
                stacklevel=8,
            )

    def _compare(self, before: Mapping[str, Any]) -> None:
        names = [name for name, now in self._environment.items() if before.get(name) != now]
        if names:
            changes = ", ".join(
                f"{name} was {before.get(name)!r} and is {self._environment[name]!r}"
                for name in names
            )
            warnings.warn(
                f"The run in {self._folder.path} began in another environment: {changes}. It goes "
                "on, but need not end in the same bits as one without an interruption.",
                CheckpointWarning,
                stacklevel=4,
            )

    def _standing(self) -> str:
        if self._kept is None:
            return f"nothing is kept in {self._folder.path} yet"
        steps, reached = len(self._kept.history), self._kept.history[-1].time
        return f"{steps} steps, up to t={reached:g}, are kept in {self._folder.path}"


class Follower(NoKeeper):
    """Goes on where the first process of several does, and leaves keeping to it."""

    def __init__(self, processes: ProcessGroup):
        self._processes = processes

    def resume(self, run: Callable[[], Identity], loop: TimeLoop) -> None:
        """Let a loop go on from what the first process has found."""
        state, self.certificate = unpacked(self._processes.broadcast(bytes))
        if state is not None:
            loop.restore(state)

    @contextmanager
    def following(self) -> Iterator[None]:
        """SIGTERM ends this process as it does the first."""
        with terminable():
            yield


class Leader(Keeper):
    """A keeper that tells the other processes what it has found."""

    def __init__(self, folder: Folder, processes: ProcessGroup):
        super().__init__(folder)
        self._processes = processes

    def resume(self, run: Callable[[], Identity], loop: TimeLoop) -> None:
        """Let a loop go on from the last checkpoint, and those of the other processes."""

        def found() -> bytes:
            super(Leader, self).resume(run, loop)
            return packed_state(self._latest, self.certificate)

        self._processes.broadcast(found)


@contextmanager
def keeper_in(
    path: str | os.PathLike | None, processes: ProcessGroup | None = None
) -> Iterator[NoKeeper]:
    """A keeper for a directory, or one that keeps nothing; of several processes the first keeps."""
    processes = processes or ProcessGroup()
    if path is None:
        yield NoKeeper()
    elif not processes.first:
        processes.broadcast(bytes)
        yield Follower(processes)
    else:
        with ExitStack() as stack:
            folders: list[Folder] = []

            def enter() -> bytes:
                folders.append(stack.enter_context(opened(path)))
                return b""

            processes.broadcast(enter)
            yield (
                Keeper(folders[0])
                if type(processes) is ProcessGroup
                else Leader(folders[0], processes)
            )
