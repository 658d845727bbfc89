"""The error of files with unexpected content."""

from collections.abc import Iterator
from contextlib import contextmanager


class DataFileError(ValueError):
    """A file whose content is not what its reader expects."""


@contextmanager
def named(path: object, error: type[DataFileError]) -> Iterator[None]:
    """Turn each `DataFileError` raised in this context into an `error` that names the file."""
    try:
        yield
    except DataFileError as reason:
        raise error(f"{path}: {reason}") from reason
