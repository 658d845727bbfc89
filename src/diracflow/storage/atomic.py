"""Writing a file so that a reader finds the old content or the new one, whatever happens."""

import errno
import os
import pathlib
import tempfile

# What file systems say that do not write directories on request.
_CANNOT_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)


def write_atomically(path: pathlib.Path, content: bytes) -> None:
    """Write `content` to `path`, replacing what is there only once all is on the disk.

    A process that is killed on the way leaves a hidden file whose name begins with that of `path`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())  # temporary files are made private
        os.replace(temporary, path)
    except BaseException:
        pathlib.Path(temporary).unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)


def _sync_directory(folder: pathlib.Path) -> None:
    """See to it that a new name in the directory outlives a failure of power."""
    if not hasattr(os, "O_DIRECTORY"):  # Windows, where directories cannot be opened
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
