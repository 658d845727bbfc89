"""What one checkpoint holds, and the file it is: arrays and a JSON header with a SHA-256.

As with model files, reading executes nothing from the file.
"""

import dataclasses
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..storage.digest import digest
from ..training.state import State, state_from
from .errors import CheckpointError
from .identity import Identity, identity_from

FORMAT = 1
_KIND = "diracflow-checkpoint"


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


def to_bytes(contents: Contents) -> bytes:
    """The file that holds them."""
    from safetensors.numpy import save

    arrays = {**contents.state.arrays(), **contents.identity.probes}
    arrays = {name: np.ascontiguousarray(a).reshape(a.shape) for name, a in arrays.items()}
    header = json.dumps(
        {
            "format": FORMAT,
            "run": contents.identity.facts,
            "environment": contents.environment,
            "certificate": list(contents.certificate),
        }
    )
    return save(arrays, metadata={_KIND: header, "sha256": digest(header, arrays)})


def read(path: pathlib.Path) -> Contents:
    """What a file holds; `Damaged` if it is not whole, `CheckpointError` if of another format."""
    from safetensors import SafetensorError, safe_open

    with path.open("rb"):
        pass  # a file that may not be read is not a damaged one
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, ValueError, TypeError, KeyError, AttributeError, OSError) as error:
        raise Damaged(f"it is not complete ({error})") from error
    if _KIND not in metadata or metadata.get("sha256") != digest(metadata[_KIND], arrays):
        raise Damaged("its checksum differs")
    try:
        header = json.loads(metadata[_KIND])
        if header["format"] == FORMAT:
            return _contents(header, arrays)
        found, writer = header["format"], header["environment"]["diracflow"]
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
