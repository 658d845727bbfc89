"""A lock on a directory that dies with the process holding it."""

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
    """Somebody else holds a lock; the message says who."""


@contextmanager
def locked(path: pathlib.Path) -> Iterator[None]:
    """Hold the lock file `path`; `Locked` if another run does.

    The file stays: were it removed, two runs could hold locks on two files of one name. The kernel
    lets a lock go however its process ends. Where there are no such locks, none is held.
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
