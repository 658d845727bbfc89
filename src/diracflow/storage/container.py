"""Files of arrays and one JSON header, in the safetensors format, with a SHA-256 of every byte.

The metadata of a file holds two texts: the header, under the name of the kind of file, and the
checksum. The checksum is taken over the whole file with zeros in its own place. Nothing in a file
is executed, and the size of a file is checked before it is read.
"""

import hashlib
import os
import stat
from collections.abc import Mapping
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from .strict_json import DataFileError, parsed

# Limits on the size of a file, and of the table at its start. Callers can change both.
MAX_BYTES = 2**30
MAX_TABLE = 2**24

_CHECKSUM = b'"sha256":"'  # in the table; quotes inside of texts are escaped
_ZEROS = b"0" * 64


# The parsed JSON header of a file, and its arrays by name.
Container = tuple[Any, dict[str, np.ndarray]]


def packed(kind: str, header: str, arrays: Mapping[str, np.ndarray]) -> bytes:
    """Return the content of a file of the given kind; `header` is JSON text."""
    # The library writes the memory of an array as it is. `np.ascontiguousarray` turns a 0-d array
    # into a 1-d one, so shapes are restored.
    rows = {name: np.ascontiguousarray(a).reshape(a.shape) for name, a in arrays.items()}
    content = save(rows, {kind: header, "sha256": _ZEROS.decode()})
    place = content.index(_CHECKSUM) + len(_CHECKSUM)
    checksum = hashlib.sha256(content).hexdigest().encode()
    return content[:place] + checksum + content[place + len(checksum) :]


def unpacked(content: bytes, kind: str, *, max_table: int = MAX_TABLE) -> Container:
    """Return header and arrays of a content made by `packed`; raise `DataFileError` otherwise."""
    length = _checked_length(content[:9], len(content), kind, max_table)
    metadata = parsed(content[8 : 8 + length]).get("__metadata__")
    texts = list(metadata.values()) if isinstance(metadata, dict) else []
    if not texts or set(metadata) != {kind, "sha256"} or not all(isinstance(t, str) for t in texts):
        raise DataFileError(f"it is a safetensors file, but not a {kind} file.")
    place = content.find(_CHECKSUM, 8, 8 + length) + len(_CHECKSUM)
    end = place + len(_ZEROS)
    found = hashlib.sha256(content[:place] + _ZEROS)
    found.update(memoryview(content)[end:])
    if found.hexdigest().encode() != content[place:end]:
        raise DataFileError("it has changed since it was written: its checksum differs.")
    header = parsed(metadata[kind].encode("utf-8", "replace"))
    try:
        arrays = load(content)
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataFileError(f"its arrays cannot be read: {error}.") from error
    return header, arrays


def read_container(
    path: str | os.PathLike, kind: str, *, max_bytes: int = MAX_BYTES, max_table: int = MAX_TABLE
) -> Container:
    """Read a file of the given kind and verify its checksum.

    Raises `FileNotFoundError` if there is no file, and `DataFileError` for all other reasons.
    """
    # Without waiting for a process that writes to a pipe.
    opener = lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0))
    try:
        with open(path, "rb", opener=opener) as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise DataFileError("it is a pipe or device, not a file.")
            if found.st_size > max_bytes:
                raise DataFileError(
                    f"it has {found.st_size} bytes; at most {max_bytes} are read. If you trust "
                    "where it comes from, allow more with `max_bytes`."
                )
            start = file.read(9)
            _checked_length(start, found.st_size, kind, max_table)
            content = start + file.read(found.st_size - len(start))
    except FileNotFoundError:
        raise FileNotFoundError(f"There is no file {os.fspath(path)}.") from None
    except OSError as error:
        raise DataFileError(f"it cannot be read: {error.strerror}.") from error
    return unpacked(content, kind, max_table=max_table)


def _checked_length(start: bytes, size: int, kind: str, max_table: int) -> int:
    """Return the length of the table of a file from the first nine bytes and the size of it."""
    length = int.from_bytes(start[:8], "little")
    # Pickles, archives and other formats do not start with a length and a brace.
    if not 2 <= length <= size - 8 or start[8:] != b"{":
        raise DataFileError(f"it is not a complete {kind} file, or not one at all.")
    if length > max_table:
        raise DataFileError(f"its table has {length} bytes; at most {max_table} are read.")
    return length
