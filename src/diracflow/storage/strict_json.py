"""JSON from anywhere: bounded before it is read, and without what readers disagree about.

Twice the same name, numbers that are not finite, texts that cannot be written down: other readers
take these in other ways, or fail later.
"""

import json
import math
import re
from typing import Any

from .errors import DataFileError

# Levels of nesting; headers have six.
MOST_LEVELS = 32
# Values of all kinds. A record of a step has 13, a training up to some thousand steps.
MOST_VALUES = 500_000
# Digits of a whole number; Python's own bound is far above what fits in a float.
_MOST_DIGITS = 30

# A string, or what makes levels and values. Possessive, and a string without end reaches to that of
# the text: time is linear in the length.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.?)*+(?:"|\Z)|[\[{\]},]', re.DOTALL)


def parsed(text: bytes, *, words: list[str] | None = None) -> Any:
    """What a JSON text says, in plain Python.

    The tokens `NaN`, `Infinity` and `-Infinity` are not JSON and are refused, unless there is a
    list `words`: they are added to it and taken as strings.
    """

    def word(token: str) -> str:
        if words is None:
            raise DataFileError(f"its JSON has {token} where a number must be finite.")
        words.append(token)
        return token

    _require_small(text)
    try:
        return json.loads(
            text.decode("utf-8"),
            object_pairs_hook=_without_repetition,
            parse_constant=word,
            parse_float=_finite,
            parse_int=_short,
        )
    except DataFileError:
        raise
    except (ValueError, RecursionError) as error:
        raise DataFileError(f"its JSON cannot be read: {error}.") from error


def _require_small(text: bytes) -> None:
    """Raise as soon as a text has too many levels or values; both are bounded from above."""
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
        raise DataFileError(f"its JSON has the number {token[:40]}, beyond the largest.")
    return number


def _short(token: str) -> int:
    if len(token) > _MOST_DIGITS:
        raise DataFileError(f"its JSON has a whole number of {len(token)} digits.")
    return int(token)
