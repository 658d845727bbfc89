"""JSON text of plain Python values, and a strict reader of JSON from unknown sources.

The reader bounds size and depth before it parses, and rejects what other readers interpret
differently: repeated names, numbers that are not finite, text that cannot be encoded.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

# Largest nesting depth. The tree of a density has about 40 levels.
MOST_LEVELS = 64
# Largest number of values. One step of a training has 13, and there are a few thousand steps.
MOST_VALUES = 500_000
# Largest number of digits of an integer; Python's own bound is far above what fits in a float.
_MOST_DIGITS = 30
# Characters that act on a terminal; tabs and line ends are harmless.
_CONTROL = {*range(32), *range(127, 160)} - {9, 10, 12, 13}

# A string, or a character that makes levels and values. The quantifiers are possessive, and an
# unterminated string extends to the end of the text, so that the time is linear in the length.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.?)*+(?:"|\Z)|[\[{\]},]', re.DOTALL)


class DataFileError(ValueError):
    """The content of a file is not what its reader expects."""


@contextmanager
def named(path: object, error: type[DataFileError]) -> Iterator[None]:
    """Turn each `DataFileError` raised in this context into an `error` that names the file."""
    try:
        yield
    except DataFileError as reason:
        raise error(f"{path}: {reason}") from reason


def plain(value: Any, *, words: bool = True) -> Any:
    """Return a value as JSON holds it; numbers that are not finite become words, or `None`."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(name): plain(part, words=words) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part, words=words) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        name = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return name if words else None
    return value


def json_text(value: Any, *, words: bool = True, indent: int | None = None) -> str:
    """Return the JSON text of `plain(value)`."""
    return json.dumps(plain(value, words=words), allow_nan=False, indent=indent)


def printable(text: str) -> str:
    """Return the text without characters that act on a terminal or cannot be encoded."""
    seen = "".join("?" if ord(c) in _CONTROL else c for c in text)
    return seen.encode("utf-8", "replace").decode("utf-8")


def parsed(text: bytes) -> Any:
    """Return the content of a JSON text; raise `DataFileError` if it is not strict JSON."""
    level = values = 0
    for token in _TOKEN.finditer(text):
        character = text[token.start() : token.start() + 1]
        if character == b'"':
            continue
        values += 1
        level += {b"[": 1, b"{": 1, b",": 0}.get(character, -1)
        if level > MOST_LEVELS:
            raise DataFileError(f"its JSON is nested more than {MOST_LEVELS} levels deep.")
        if values > MOST_VALUES:
            raise DataFileError(f"its JSON has more than {MOST_VALUES} values.")
    try:
        return json.loads(
            text.decode("utf-8"),
            object_pairs_hook=_without_repetition,
            parse_constant=_finite,
            parse_float=_finite,
            parse_int=_short,
        )
    except DataFileError:
        raise
    except (ValueError, RecursionError) as error:
        raise DataFileError(f"its JSON cannot be read: {error}.") from error


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise DataFileError(f"its JSON has the name {name[:40]!r} twice in one place.")
        found[name] = value
    return found


def _finite(token: str) -> float:
    number = float(token)
    if not math.isfinite(number):
        raise DataFileError(f"its JSON has the number {token[:40]}, which is not finite.")
    return number


def _short(token: str) -> int:
    if len(token) > _MOST_DIGITS:
        raise DataFileError(f"its JSON has a whole number of {len(token)} digits.")
    return int(token)
