"""Attributes and methods of an object that are those of one of its parts."""

import operator
from typing import Any


def delegated(path: str) -> Any:
    """Return a property with the value at `path`, such as `"density.domain"`, or a method there."""
    return property(operator.attrgetter(path))
