"""The directory of a run: its last two checkpoints, and a lock that excludes a second run."""

import os
import pathlib
import re
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from ..storage.files import Locked, locked, write_atomically
from .checkpoint_errors import CheckpointError, CheckpointWarning
from .checkpoint_file import Contents, Damaged, file_content, read

_KEPT = 2
_LOCK = "checkpoint.lock"
# Numbered by steps.
_FILE = re.compile(r"checkpoint-(\d{6,})\.safetensors")


@contextmanager
def opened(path: str | os.PathLike) -> Iterator["Folder"]:
    """Open a directory for checkpoints: create it if it does not exist, and lock it."""
    folder = _path(path).absolute()  # the process may change its directory
    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(folder / _LOCK))
            _sweep(folder)
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(b"room?")
        except Locked as holder:
            raise CheckpointError(
                f"Another run uses {folder}: {holder}. Wait until it ends, or give another "
                "directory."
            ) from None
        except OSError as error:
            raise CheckpointError(
                f"Checkpoints cannot be written to {folder}: {error.strerror or error}. Give a "
                "directory that is writable."
            ) from error
        yield Folder(folder)


def holds_checkpoint(path: str | os.PathLike) -> bool:
    """Return `True` if a directory has a checkpoint to resume from."""
    return bool(_files(_path(path)))


class Folder:
    """A directory that is locked for this run."""

    def __init__(self, path: pathlib.Path):
        self.path = path

    def newest(self) -> Contents | None:
        """Return the last undamaged checkpoint; rename damaged ones, with a warning."""
        for path in _files(self.path):
            try:
                return read(path)
            except Damaged as damage:
                aside = path.with_name(f"damaged-{path.name}")
                path.replace(aside)  # or it would count as one of the last two
                warnings.warn(
                    f"{path} cannot be resumed from: {damage}. It is now {aside.name}; the run "
                    "resumes from the checkpoint before it, or from the start if there is none.",
                    CheckpointWarning,
                    stacklevel=4,
                )
        return None

    def write(self, contents: Contents) -> None:
        """Write a checkpoint and delete all but the last two; an `OSError` changes nothing."""
        path = self.path / f"checkpoint-{contents.steps:06d}.safetensors"
        write_atomically(path, [file_content(contents)])
        for old in _files(self.path)[_KEPT:]:
            old.unlink()


def _path(path: str | os.PathLike) -> pathlib.Path:
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise ValueError(f"`checkpoint` must be the path of a directory; got {path!r}.")
    return pathlib.Path(path)


def _files(folder: pathlib.Path) -> list[pathlib.Path]:
    """Return the checkpoints, the newest first."""
    if not folder.is_dir():
        return []
    found = [(_FILE.fullmatch(path.name), path) for path in folder.iterdir()]
    return [path for _, path in sorted(((int(m[1]), p) for m, p in found if m), reverse=True)]


def _sweep(folder: pathlib.Path) -> None:
    """Remove the incomplete files of a killed run."""
    for path in folder.glob(".checkpoint-*.safetensors.*"):
        path.unlink()
