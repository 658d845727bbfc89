"""Arrays and one JSON header in a file, in the layout of safetensors, with a SHA-256 of it all.

Eight bytes say how long a table is; the table, JSON, says for each array its type, shape and place;
then come the arrays. Beside the arrays the table holds two texts: the header and the checksum.
Nothing of a file is executed, and nothing is allocated before its size is known to fit.

The checksum covers the header and the names, types, shapes and values of the arrays. All that it
does not cover, such as the order of the arrays, must be as `packed` writes it: a file in which one
byte has changed is refused.
"""

import hashlib
import json
import math
import os
import stat
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from .errors import DataFileError
from .fields import Field
from .strict_json import parsed

# Largest file, and largest table in it, that are read unless the caller allows more.
MAX_BYTES = 2**30
MAX_TABLE = 2**24

_TYPES = {
    "F64": "<f8",
    "I64": "<i8",
    "U64": "<u8",
    "F32": "<f4",
    "I32": "<i4",
    "U32": "<u4",
    "U8": "|u1",
    "BOOL": "|b1",
}
_NAMES = {np.dtype(code): name for name, code in _TYPES.items()}
_MOST_ARRAYS, _MOST_AXES = 256, 8
_METADATA = "__metadata__"

Arrays = Mapping[str, np.ndarray]


class Container(NamedTuple):
    """What a file holds: a header, as JSON that has not been read yet, and arrays."""

    header: str
    arrays: dict[str, np.ndarray]


def packed(kind: str, header: str, arrays: Arrays) -> list[bytes | memoryview]:
    """The parts of a file, in order; `kind` is the name of the header."""
    # NumPy makes one axis of none, which a single number must not gain.
    rows = {name: np.ascontiguousarray(a).reshape(a.shape) for name, a in arrays.items()}
    ordered = _ordered(rows)
    checksum = digest(header, ordered)
    table: dict[str, Any] = {_METADATA: {kind: header, "sha256": checksum}}
    end = 0
    for name, array in ordered.items():
        begin, end = end, end + array.nbytes
        table[name] = {
            "dtype": _NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [begin, end],
        }
    text = _canonical(table)
    data = [array.reshape(-1).data.cast("B") for array in ordered.values() if array.size]
    return [len(text).to_bytes(8, "little"), text, *data]


def read_container(
    path: str | os.PathLike, kind: str, *, max_bytes: int = MAX_BYTES, max_table: int = MAX_TABLE
) -> Container:
    """Read a file of that kind, whose checksum is verified.

    Raises `FileNotFoundError` if there is no file, and `DataFileError` for all else.
    """
    handle = _opened(path)
    try:
        size = _checked_size(os.fstat(handle), max_bytes)
    except DataFileError:
        os.close(handle)
        raise
    with os.fdopen(handle, "rb") as file:
        length = int.from_bytes(_exactly(file, min(size, 8)), "little")
        if size < 8 or not 2 <= length <= size - 8:
            raise DataFileError(f"it is not a complete {kind} file, or not one at all.")
        if length > max_table:
            raise DataFileError(f"its table has {length} bytes; at most {max_table} are read.")
        text = _exactly(file, length)
        table = _table(text, kind)
        metadata = _metadata(table, kind)
        places = _places(table, size - 8 - length)
        data = _exactly(file, size - 8 - length)
    arrays = {name: place.taken(data) for name, place in places.items()}
    _require_canonical(text, table, arrays)
    if digest(metadata[kind], arrays) != metadata["sha256"]:
        raise DataFileError("it has changed since it was written: its checksum differs.")
    return Container(metadata[kind], arrays)


def digest(header: str, arrays: Arrays) -> str:
    """SHA-256 of the header and of names, types, shapes and values of the arrays."""
    found = hashlib.sha256(header.encode())
    for name in sorted(arrays):
        array = arrays[name]
        found.update(f"{name}:{array.dtype}:{array.shape}".encode())
        found.update(array.reshape(-1).data.cast("B") if array.size else b"")
    return found.hexdigest()


class _Place(NamedTuple):
    dtype: np.dtype
    shape: tuple[int, ...]
    begin: int

    def taken(self, data: bytes) -> np.ndarray:
        count = math.prod(self.shape)
        return np.frombuffer(data, self.dtype, count, self.begin).reshape(self.shape)


def _opened(path: str | os.PathLike) -> int:
    # Opening a pipe must not wait for a writer.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        raise FileNotFoundError(f"There is no file {os.fspath(path)}.") from None
    except OSError as error:
        raise DataFileError(f"it cannot be opened: {error.strerror}.") from error


def _checked_size(found: os.stat_result, max_bytes: int) -> int:
    if not stat.S_ISREG(found.st_mode):
        what = "a directory" if stat.S_ISDIR(found.st_mode) else "a pipe or device"
        raise DataFileError(f"it is {what}, not a file.")
    if found.st_size > max_bytes:
        raise DataFileError(
            f"it has {found.st_size} bytes; at most {max_bytes} are read. If it comes from where "
            "you trust, allow more with `max_bytes`."
        )
    return found.st_size


def _exactly(file: Any, count: int) -> bytes:
    try:
        content = file.read(count)
    except OSError as error:
        raise DataFileError(f"it cannot be read: {error.strerror}.") from error
    if len(content) != count:
        raise DataFileError("it is not complete: it became shorter while it was read.")
    return content


def _table(text: bytes, kind: str) -> dict[str, Any]:
    if not text.startswith(b"{"):  # as pickles, archives and arrays of other formats do not
        raise DataFileError(f"it is not a complete {kind} file, or not one at all.")
    return Field(parsed(text), "table").mapping(most=_MOST_ARRAYS + 1)


def _metadata(table: dict[str, Any], kind: str) -> dict[str, str]:
    metadata = table.get(_METADATA)
    if not isinstance(metadata, dict) or set(metadata) != {kind, "sha256"}:
        raise DataFileError(f"it is a safetensors file, but not a {kind} file.")
    return {name: Field(text, name).text(most=MAX_TABLE) for name, text in metadata.items()}


def _places(table: dict[str, Any], size: int) -> dict[str, _Place]:
    """Where the arrays are; they fill the rest of the file, in order and without gaps."""
    places, end = {}, 0
    for name, entry in _without_metadata(table).items():
        fields = Field(entry, f"array {name[:40]!r}").record("dtype", "shape", "data_offsets")
        dtype = np.dtype(_TYPES[fields["dtype"].one_of(_TYPES)])
        shape = tuple(axis.whole(0, size) for axis in fields["shape"].items(most=_MOST_AXES))
        begin, end = end, end + math.prod(shape) * dtype.itemsize
        offsets = [offset.whole(0, size) for offset in fields["data_offsets"].items(most=2)]
        if offsets != [begin, end] or end > size:
            raise DataFileError(
                f"the array {name[:40]!r} of shape {shape} must lie at {begin} to {end}, within "
                f"{size} bytes; its place is {offsets}."
            )
        places[Field(name, "name of an array").text(most=100)] = _Place(dtype, shape, begin)
    if end != size:
        raise DataFileError(f"its arrays take {end} bytes; there are {size}.")
    return places


def _require_canonical(text: bytes, table: dict[str, Any], arrays: Arrays) -> None:
    in_order = list(_without_metadata(table)) == list(_ordered(arrays))
    if not in_order or _canonical(table) != text:
        raise DataFileError("it has changed since it was written: its table is not as written.")


def _without_metadata(table: dict[str, Any]) -> dict[str, Any]:
    return {name: entry for name, entry in table.items() if name != _METADATA}


def _ordered(arrays: Arrays) -> dict[str, np.ndarray]:
    """Long numbers first, which keeps all of them aligned."""
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    return {name: arrays[name] for name in order}


def _canonical(table: dict[str, Any]) -> bytes:
    text = json.dumps(table, separators=(",", ":"), ensure_ascii=False).encode()
    return text + b" " * (-len(text) % 8)
