"""Values of a JSON text, taken only if they are of the kind that is expected."""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from .errors import DataFileError

# Characters that act on a terminal; tabs and ends of lines are harmless.
_ACTING = {*range(32), *range(127, 160)} - {9, 10, 12, 13}


class Field(NamedTuple):
    """A value, and where it stands."""

    value: Any
    where: str

    def number(self, low: float = -math.inf, high: float = math.inf) -> float:
        """A finite number between two others, which are included."""
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.refusal("a number")
        if not math.isfinite(value) or not low <= value <= high:
            raise self.refusal(f"a finite number within [{low:g}, {high:g}]")
        return float(value)

    def whole(self, low: int, high: int) -> int:
        """A whole number between two others, which are included."""
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.refusal(f"a whole number within [{low}, {high}]")
        return value

    def truth(self) -> bool:
        """Yes or no."""
        if not isinstance(self.value, bool):
            raise self.refusal("true or false")
        return self.value

    def text(self, *, most: int = 1000) -> str:
        """A text that can be written to a terminal."""
        if not isinstance(self.value, str) or len(self.value) > most:
            raise self.refusal(f"a text of at most {most} characters")
        if not self.value.isprintable() and printable(self.value) != self.value:
            raise self.refusal("a text without control characters")
        return self.value

    def one_of(self, choices: Iterable[str]) -> str:
        """One of some words."""
        known = tuple(choices)
        if not isinstance(self.value, str) or self.value not in known:
            raise self.refusal(f"one of {', '.join(known)}")
        return self.value

    def items(self, *, most: int) -> list["Field"]:
        """The items of a list."""
        if not isinstance(self.value, list) or len(self.value) > most:
            raise self.refusal(f"a list of at most {most} items")
        return [Field(item, f"{self.where}[{i}]") for i, item in enumerate(self.value)]

    def mapping(self, *, most: int) -> dict[str, Any]:
        """Values by name, whatever these are."""
        if not isinstance(self.value, dict) or len(self.value) > most:
            raise self.refusal(f"an object of at most {most} values")
        return self.value

    def record(self, *names: str, optional: tuple[str, ...] = ()) -> dict[str, "Field"]:
        """Values by name, where the names are known."""
        if not isinstance(self.value, dict):
            raise self.refusal("an object")
        missing = [name for name in names if name not in self.value]
        if missing:
            raise DataFileError(f"{self._place()} lacks `{missing[0]}`.")
        unknown = [name for name in self.value if name not in (*names, *optional)]
        if unknown:
            raise DataFileError(f"{self._place()} has an unknown entry {unknown[0][:40]!r}.")
        return {name: Field(v, self._inner(name)) for name, v in self.value.items()}

    def refusal(self, expected: str) -> DataFileError:
        """The error that says what was expected here, and what came."""
        shown = repr(self.value) if not isinstance(self.value, list | dict) else None
        came = type(self.value).__name__ if shown is None else shown[:60]
        return DataFileError(f"{self._place()} must be {expected}; got {came}.")

    def _inner(self, name: str) -> str:
        return f"{self.where}.{name}" if self.where else name

    def _place(self) -> str:
        return f"`{self.where}`" if self.where else "the header"


def printable(text: str) -> str:
    """The text without characters that act on a terminal or cannot be encoded."""
    seen = "".join("?" if ord(c) in _ACTING else c for c in text)
    return seen.encode("utf-8", "replace").decode("utf-8")
