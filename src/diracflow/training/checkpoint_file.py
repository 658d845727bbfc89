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
from .state import State, state_from


class CheckpointError(ValueError):
    """A directory in which a training cannot write checkpoints, or from which it cannot resume."""


class CheckpointWarning(UserWarning):
    """A training continues, but its checkpoints do not guarantee what they usually do."""


FORMAT = 1
_KIND = "diracflow-checkpoint"
# Two thousand steps of fifty thousand parameters.
_MAX_BYTES = 2**32
# The arrays of a state are named by the state; those of other parts begin with the part's name.
_PARTS = ("identity", "environment", "certificate")
_CLASSES = {"Identity": Identity, "Fingerprint": Fingerprint}

Table = tuple[dict[str, Any], ...]


class Damaged(Exception):
    """A file that is incomplete or was changed."""


@dataclasses.dataclass(frozen=True)
class Contents:
    """A run, its state, and the environment in which it ran."""

    identity: Identity
    state: State
    environment: Mapping[str, Any]
    certificate: Table = ()  # of the density so far, if it was computed

    @property
    def steps(self) -> int:
        return len(self.state.history)


def file_content(contents: Contents) -> bytes:
    """Return the bytes of the file that holds a checkpoint."""
    encoder = Encoder(_CLASSES, lambda encoder, value, path: None)
    header = {name: encoder(getattr(contents, name), name) for name in _PARTS}
    arrays = {**contents.state.arrays(), **encoder.arrays}
    return packed(_KIND, json_text({"format": FORMAT, **header}), arrays)


def read(path: pathlib.Path) -> Contents:
    """Read a checkpoint; raise `Damaged`, or `CheckpointError` if it has another format."""
    with path.open("rb"):
        pass  # a file that cannot be opened is not a damaged one
    try:
        header, arrays = read_container(path, _KIND, max_bytes=_MAX_BYTES)
        if header["format"] == FORMAT:
            return _contents(header, arrays)
        found, writer = header["format"], header["environment"]["dict"]["diracflow"]
    except DataFileError as error:
        raise Damaged(str(error).rstrip(".")) from error
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise Damaged(f"it does not hold the state of a training ({error})") from error
    raise CheckpointError(
        f"{path} has format {found}; this diracflow reads format {FORMAT}. Resume with the version "
        f"that wrote it, {writer}, or give another directory."
    )


def _contents(header: Mapping[str, Any], arrays: Arrays) -> Contents:
    own = {name: arrays.pop(name) for name in list(arrays) if name.startswith("identity.")}
    decoder = Decoder(own, _CLASSES, _unknown)
    found = {name: decoder(header[name], name) for name in _PARTS}
    return Contents(state=state_from(arrays), **found)


def _unknown(decoder: Decoder, node: dict[str, Any], path: str) -> Any:
    raise DataFileError(f"`{path}` is not an object that checkpoints have.")


def packed_state(state: State | None, certificate: Table | None) -> bytes:
    """Return a state and a certificate as bytes for another process of the same training."""
    encoder = Encoder({}, lambda encoder, value, path: None)
    arrays: dict[str, np.ndarray] = {} if state is None else state.arrays()
    return packed(_KIND, json_text(encoder(certificate, "certificate")), arrays)


def unpacked_state(message: bytes) -> tuple[State | None, Table | None]:
    """Return the state and the certificate of a message from `packed_state`."""
    header, arrays = unpacked(message, _KIND)
    certificate = Decoder({}, {}, _unknown)(header, "certificate")
    return state_from(arrays) if arrays else None, certificate


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
