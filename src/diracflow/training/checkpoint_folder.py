"""The directory of a run: its last two checkpoints, and a lock against a second run."""

import os
import pathlib
import re
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from ..storage.atomic import write_atomically
from ..storage.lock import Locked, locked
from .checkpoint_errors import CheckpointError, CheckpointWarning
from .checkpoint_file import Contents, Damaged, parts, read

_KEPT = 2
_LOCK = "checkpoint.lock"
# Numbered by steps.
_FILE = re.compile(r"checkpoint-(\d{6,})\.safetensors")


@contextmanager
def opened(path: str | os.PathLike) -> Iterator["Folder"]:
    """A directory to keep a run in, made if need be, and locked."""
    folder = _path(path).absolute()  # also if the process changes its directory
    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(folder / _LOCK))
            _sweep(folder)
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(b"room?")
        except Locked as holder:
            raise CheckpointError(
                f"Another run is kept in {folder}, by {holder}. Wait for its end, or give another "
                "directory."
            ) from None
        except OSError as error:
            raise CheckpointError(
                f"A training cannot be kept in {folder}: {error.strerror or error}. Give a "
                "directory that can be written to."
            ) from error
        yield Folder(folder)


def holds_checkpoint(path: str | os.PathLike) -> bool:
    """Whether there is a run to resume in a directory."""
    return bool(_files(_path(path)))


class Folder:
    """A directory that this run has to itself."""

    def __init__(self, path: pathlib.Path):
        self.path = path

    def newest(self) -> Contents | None:
        """The last checkpoint that is whole; those damaged are put aside, with a warning."""
        for path in _files(self.path):
            try:
                return read(path)
            except Damaged as damage:
                aside = path.with_name(f"damaged-{path.name}")
                path.replace(aside)  # or it would count as one of the last two
                warnings.warn(
                    f"{path} cannot be resumed from: {damage}. It is now {aside.name}; the run "
                    "goes on from the checkpoint before it, or from the start if there is none.",
                    CheckpointWarning,
                    stacklevel=4,
                )
        return None

    def write(self, contents: Contents) -> None:
        """Keep a checkpoint, and let go of all but the last two; an `OSError` changes nothing."""
        path = self.path / f"checkpoint-{contents.steps:06d}.safetensors"
        write_atomically(path, parts(contents))
        for old in _files(self.path)[_KEPT:]:
            old.unlink()


def _path(path: str | os.PathLike) -> pathlib.Path:
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise ValueError(f"`checkpoint` must be the path of a directory; got {path!r}.")
    return pathlib.Path(path)


def _files(folder: pathlib.Path) -> list[pathlib.Path]:
    """Checkpoints, the newest first."""
    if not folder.is_dir():
        return []
    found = [(_FILE.fullmatch(path.name), path) for path in folder.iterdir()]
    return [path for _, path in sorted(((int(m[1]), p) for m, p in found if m), reverse=True)]


def _sweep(folder: pathlib.Path) -> None:
    """Remove what a killed run was writing."""
    for path in folder.glob(".checkpoint-*.safetensors.*"):
        path.unlink()
