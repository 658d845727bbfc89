"""The content of one checkpoint, and its file: arrays and a JSON header with a SHA-256.

As with model files, reading executes nothing from the file.
"""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..sde.fingerprint import Fingerprint
from ..storage.codec import Arrays, Decoder, Encoder
from ..storage.container import packed, read_container, unpacked
from ..storage.strict_json import DataFileError, json_text
from .checkpoint_errors import CheckpointError
from .run_identity import Identity
from .state import State, state_from

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
