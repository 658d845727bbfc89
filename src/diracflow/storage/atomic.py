"""Atomic writes: a file has its old content or its new content, never a part of it.

The content is written to a temporary file in the same directory, flushed to the disk, and renamed.
A failure before the renaming leaves the old content.
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def write_atomically(path: str | os.PathLike, parts: Iterable[bytes]) -> None:
    """Write `parts` one after another as the content of `path`.

    A replaced file keeps its permissions. If `path` is a link, the file it points to is replaced.
    If writing fails, an `OSError` says why, the old file is unchanged, and no other file is left.
    """
    target = Path(os.path.realpath(path))
    try:
        mode = _mode(target)
        temporary = target.with_name(f".{target.name[:64]}.{secrets.token_hex(8)}")
        try:
            _write(temporary, parts, mode)
            os.replace(temporary, target)
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        _flush_directory(target.parent)
    except OSError as error:
        raise _explained(error, target) from error


def _mode(target: Path) -> int | None:
    """Return the permissions of the file at `target`, or `None` if there is none."""
    if not target.parent.is_dir():
        raise NotADirectoryError(errno.ENOENT, "there is no such directory")
    try:
        found = target.stat()
    except FileNotFoundError:
        return None
    # Renaming would replace a device or a pipe.
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "there is something else than a file")
    return stat.S_IMODE(found.st_mode)


def _write(path: Path, parts: Iterable[bytes], mode: int | None) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    # The system applies the user's mask, which cannot be read without changing it for all threads.
    with os.fdopen(os.open(path, flags, 0o666 if mode is None else mode), "wb") as file:
        for part in parts:
            file.write(part)
        file.flush()
        if mode is not None:
            os.chmod(path, mode)
        os.fsync(file.fileno())


def _flush_directory(path: Path) -> None:
    """Flush the directory, so that the new name survives a loss of power."""
    with suppress(OSError):  # the file is complete; not all systems can flush directories
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _explained(error: OSError, target: Path) -> OSError:
    reason = error.strerror or str(error)
    if error.errno == errno.ENOENT:
        return FileNotFoundError(
            f"{target} cannot be written: there is no directory {target.parent}. Make it, or "
            "choose another."
        )
    kept = " What was there before is unchanged." if target.exists() else ""
    message = f"{target} cannot be written: {reason}.{kept} Choose another place or make room."
    return OSError(error.errno, message)
