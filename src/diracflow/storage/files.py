"""Atomic replacement of files, and locks on directories."""

import errno
import os
import platform
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def write_atomically(path: str | os.PathLike, parts: Iterable[bytes | memoryview]) -> None:
    """Replace the content of `path` by `parts`, one after another.

    The parts are written to a temporary file in the same directory, which is flushed to the disk
    and renamed. Readers see either the old or the new content. A replaced file keeps its
    permissions, and of a link the target is replaced. If writing fails, an `OSError` is raised, the
    old content stays, and the temporary file is removed.
    """
    target = Path(os.path.realpath(path))
    try:
        mode = _mode(target)
        temporary = target.with_name(f".{target.name[:64]}.{secrets.token_hex(8)}")
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
            # The system applies the user's mask. Python can only read the mask by changing it.
            with os.fdopen(os.open(temporary, flags, mode or 0o666), "wb") as file:
                if mode is not None:
                    os.chmod(temporary, mode)
                file.writelines(parts)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        if error.errno == errno.ENOENT:
            raise FileNotFoundError(
                f"{target} cannot be written: there is no directory {target.parent}. Make it, or "
                "choose another."
            ) from error
        kept = " What was there before is unchanged." if target.exists() else ""
        raise OSError(
            error.errno,
            f"{target} cannot be written: {error.strerror or error}.{kept} Choose another place "
            "or make room.",
        ) from error
    with suppress(OSError):  # the file is complete; this makes its name survive a loss of power
        handle = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _mode(target: Path) -> int | None:
    """Return the permissions of the file to replace, or `None` if there is no such file."""
    if not target.parent.is_dir():
        raise NotADirectoryError(errno.ENOENT, "there is no such directory")
    try:
        found = target.stat()
    except FileNotFoundError:
        return None
    # Renaming would remove a device or a pipe.
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "there is something else than a file")
    return stat.S_IMODE(found.st_mode)


class Locked(RuntimeError):
    """Another process holds a lock; the message names that process."""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file `path`, and raise `Locked` if another process holds it.

    The kernel releases the lock when the process ends. The file stays: if it were removed, two
    processes could lock two files of the same name. Windows has no such locks; none is held there.
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
