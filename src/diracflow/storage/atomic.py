"""Files that are there as a whole or not at all.

What is written goes to a file beside the target, down to the disk, and takes the target's name in
one step. Readers see the old content or the new one; whatever fails before leaves the old one.
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

Part = bytes | memoryview


def write_atomically(path: str | os.PathLike, parts: Iterable[Part]) -> None:
    """Write `parts` one after another as the content of `path`.

    A new file has the permissions that the user's mask leaves, a replaced one those it had. Of a
    link, the file it points to is replaced. If something fails, an `OSError` says what, what was
    there before is still there, and nothing else is left behind.
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
    """Permissions of what is replaced; `None` if there is nothing."""
    if not target.parent.is_dir():
        raise NotADirectoryError(errno.ENOENT, "there is no such directory")
    try:
        found = target.stat()
    except FileNotFoundError:
        return None
    # A device or a pipe would be gone.
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "there is something else than a file")
    return stat.S_IMODE(found.st_mode)


def _write(path: Path, parts: Iterable[Part], mode: int | None) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    # The system applies the mask; reading it would mean to change it for all threads.
    with os.fdopen(os.open(path, flags, 0o666 if mode is None else mode), "wb") as file:
        for part in parts:
            file.write(part)
        file.flush()
        if mode is not None:
            os.chmod(path, mode)
        os.fsync(file.fileno())


def _flush_directory(path: Path) -> None:
    """Let the new name survive a loss of power, where the system can."""
    with suppress(OSError):  # the file is complete and in its place
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
