"""A lock on a directory, released when the process that holds it ends."""

import os
import pathlib
import platform
from collections.abc import Iterator
from contextlib import contextmanager

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


class Locked(RuntimeError):
    """Another process holds the lock; the message names it."""


@contextmanager
def locked(path: pathlib.Path) -> Iterator[None]:
    """Hold a lock on the file `path`; raise `Locked` if another process holds it.

    The file is not removed: two processes could then hold locks on two files of the same name. The
    kernel releases the lock when the process ends. Systems without such locks hold none.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if fcntl is not None:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.pread(handle, 200, 0).decode(errors="replace").strip()
                raise Locked(holder or "another process") from None
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"process {os.getpid()} on {platform.node()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)
