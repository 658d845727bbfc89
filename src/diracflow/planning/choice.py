"""An automatic choice and its reason."""

from typing import Any, NamedTuple


class Choice(NamedTuple):
    """The value of a setting, and why a rule chose it."""

    value: Any
    reason: str
