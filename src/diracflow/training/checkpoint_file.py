"""Checkpoint files, and the directory of a run.

A file has arrays and a JSON header with a SHA-256. As with model files, reading executes nothing
from the file. The directory holds the last two checkpoints, and a lock that excludes a second run.
"""

import dataclasses
import os
import pathlib
import re
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from ..sde.fingerprint import Fingerprint
from ..storage.codec import Arrays, Decoder, Encoder
from ..storage.container import packed, read_container, unpacked
from ..storage.files import Locked, locked, write_atomically
from ..storage.strict_json import DataFileError, json_text
from .run_identity import Identity
from .state import Diagnostics, Record, State


class CheckpointError(ValueError):
    """A directory in which a training cannot write checkpoints, or from which it cannot resume."""


class CheckpointWarning(UserWarning):
    """A training continues, but its checkpoints do not guarantee what they usually do."""


FORMAT = 1
_KIND = "diracflow-checkpoint"
# Two thousand steps of fifty thousand parameters.
_MAX_BYTES = 2**32
Table = tuple[dict[str, Any], ...]


class Damaged(Exception):
    """A file that is incomplete or was changed."""


@dataclasses.dataclass(frozen=True)
class Contents:
    """A run, its state, and the environment in which it ran."""

    identity: Identity
    state: State
    environment: Mapping[str, Any]
    certificate: Table | None = None  # of the density so far, if it was computed


_CLASSES: dict[str, type] = {
    cls.__name__: cls for cls in (Contents, Identity, Fingerprint, State, Record, Diagnostics)
}


def encoded(contents: Contents) -> bytes:
    """Return the bytes of a checkpoint, for a file or for another process."""
    encoder = Encoder(_CLASSES, _stacked)
    header = {"format": FORMAT, "diracflow": contents.environment.get("diracflow")}
    text = json_text({**header, "contents": encoder(contents, "contents")})
    return packed(_KIND, text, encoder.arrays)


def _stacked(encoder: Encoder, value: Any, path: str) -> dict[str, Any] | None:
    """Encode the rows of a table as one array."""
    rows = isinstance(value, tuple) and value and isinstance(value[0], np.ndarray)
    return {"rows": encoder(np.stack(value), path)} if rows else None


def decoded(message: bytes) -> Contents:
    """Return the checkpoint whose bytes another process has sent."""
    return _contents(*unpacked(message, _KIND))


def read(path: pathlib.Path) -> Contents:
    """Read a checkpoint; raise `Damaged`, or `CheckpointError` if it has another format."""
    with path.open("rb"):
        pass  # a file that cannot be opened is not a damaged one
    try:
        header, arrays = read_container(path, _KIND, max_bytes=_MAX_BYTES)
        if header["format"] == FORMAT:
            return _contents(header, arrays)
        found, writer = header["format"], header["diracflow"]
    except DataFileError as error:
        raise Damaged(str(error).rstrip(".")) from error
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise Damaged(f"it does not hold the state of a training ({error})") from error
    raise CheckpointError(
        f"{path} has format {found}; this diracflow reads format {FORMAT}. Resume with the version "
        f"that wrote it, {writer}, or give another directory."
    )


def _contents(header: Mapping[str, Any], arrays: Arrays) -> Contents:
    found = Decoder(arrays, _CLASSES, _unstacked)(header["contents"], "contents")
    if not isinstance(found, Contents):
        raise DataFileError(f"it holds a {type(found).__name__}.")
    return found


def _unstacked(decoder: Decoder, node: dict[str, Any], path: str) -> tuple[np.ndarray, ...]:
    if set(node) != {"rows"}:
        raise DataFileError(f"`{path}` is not an object that checkpoints have.")
    return tuple(map(np.array, decoder(node["rows"], path)))


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
            for incomplete in folder.glob(".checkpoint-*.safetensors.*"):  # of a killed run
                incomplete.unlink()
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
                    stacklevel=7,
                )
        return None

    def write(self, contents: Contents) -> None:
        """Write a checkpoint and delete all but the last two; an `OSError` changes nothing."""
        path = self.path / f"checkpoint-{len(contents.state.history):06d}.safetensors"
        write_atomically(path, [encoded(contents)])
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
