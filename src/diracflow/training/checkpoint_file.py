"""What one checkpoint holds, and the file it is: arrays and a JSON header with a SHA-256.

As with model files, reading executes nothing from the file.
"""

import dataclasses
import io
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..storage.container import packed, read_container
from ..storage.errors import DataFileError
from .checkpoint_errors import CheckpointError
from .run_identity import Identity, identity_from
from .state import State, state_from

FORMAT = 1
_KIND = "diracflow-checkpoint"
# Two thousand steps of fifty thousand parameters.
_MAX_BYTES = 2**32


class Damaged(Exception):
    """A file that is not, or no longer, what was written."""


@dataclasses.dataclass(frozen=True)
class Contents:
    """A run, where it was, and in what environment."""

    identity: Identity
    state: State
    environment: Mapping[str, Any]
    certificate: tuple[dict[str, Any], ...] = ()  # of the density so far, if it was computed

    @property
    def steps(self) -> int:
        return len(self.state.history)


def parts(contents: Contents) -> list[bytes | memoryview]:
    """The file that holds them, in pieces."""
    header = json.dumps(
        {
            "format": FORMAT,
            "run": contents.identity.facts,
            "environment": contents.environment,
            "certificate": list(contents.certificate),
        }
    )
    return packed(_KIND, header, {**contents.state.arrays(), **contents.identity.probes})


def read(path: pathlib.Path) -> Contents:
    """What a file holds; `Damaged` if it is not whole, `CheckpointError` if of another format."""
    with path.open("rb"):
        pass  # a file that may not be read is not a damaged one
    try:
        text, arrays = read_container(path, _KIND, max_bytes=_MAX_BYTES)
        header = json.loads(text)
        if header["format"] == FORMAT:
            return _contents(header, arrays)
        found, writer = header["format"], header["environment"]["diracflow"]
    except DataFileError as error:
        raise Damaged(str(error).rstrip(".")) from error
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise Damaged(f"it does not hold the state of a training ({error})") from error
    raise CheckpointError(
        f"{path} has format {found}; this diracflow reads format {FORMAT}. Resume with the version "
        f"that wrote it, {writer}, or give another directory."
    )


def _contents(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Contents:
    return Contents(
        identity=identity_from(header["run"], arrays),
        state=state_from(arrays),
        environment=header["environment"],
        certificate=tuple(header["certificate"]),
    )


def packed_state(state: State | None, certificate: Any) -> bytes:
    """A state, if there is one, and a certificate, for another process of the same training."""
    file = io.BytesIO()
    text = np.frombuffer(json.dumps(certificate).encode(), np.uint8)
    arrays: dict[str, Any] = {} if state is None else state.arrays()
    np.savez(file, certificate=text, **arrays)
    return file.getvalue()


def unpacked(message: bytes) -> tuple[State | None, tuple[dict[str, Any], ...] | None]:
    """What `packed_state` has packed."""
    with np.load(io.BytesIO(message), allow_pickle=False) as file:
        arrays = dict(file)
    certificate = json.loads(arrays.pop("certificate").tobytes())
    return state_from(arrays) if arrays else None, certificate and tuple(certificate)
