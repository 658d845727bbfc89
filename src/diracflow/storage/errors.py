"""The error of files that are not what they should be."""

from collections.abc import Iterator
from contextlib import contextmanager


class DataFileError(ValueError):
    """A file that cannot be taken as what it claims to be."""


@contextmanager
def named(path: object, error: type[DataFileError]) -> Iterator[None]:
    """Within this, refusals become an `error` that names the file."""
    try:
        yield
    except DataFileError as refusal:
        raise error(f"{path}: {refusal}") from refusal
