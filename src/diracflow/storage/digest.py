"""A checksum of a header and of arrays."""

import hashlib
from collections.abc import Mapping

import numpy as np


def digest(header: str, arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of the header and of names, types, shapes and contents of the arrays."""
    found = hashlib.sha256(header.encode())
    for name in sorted(arrays):
        found.update(f"{name}:{arrays[name].dtype}:{arrays[name].shape}".encode())
        found.update(arrays[name].tobytes())
    return found.hexdigest()
