"""Laws, domains and residuals in words, for people who read files and reports."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any


def in_words(description: Mapping[str, Any]) -> str:
    """A law or a domain from its description, written as it is called."""
    kind = "law" if "law" in description else "domain"
    rest = {name: value for name, value in description.items() if name not in (kind, "name")}
    return f"{description[kind]}({', '.join(f'{name}={_value(rest[name])}' for name in rest)})"


def ends_in_words(boundaries: Sequence[Mapping[str, Any]]) -> str:
    """What Feller's test said of the ends of a domain."""
    return "; ".join(
        f"component {row['component']} at {row['end']:g}: "
        f"{'ACCESSIBLE, not to be trusted' if row['accessible'] else 'not reached'}"
        f" (index {row['index'] and round(row['index'], 3)})"
        for row in boundaries
    )


def residuals_in_words(fresh: Sequence[float]) -> str:
    """Residuals on fresh points in the order of the steps."""
    # The first step has no earlier velocity to judge.
    values = list(fresh)[1:]
    if not values:
        return "none recorded"
    return f"median {median(values):.1e}, largest {max(values):.1e}, last {values[-1]:.1e}"


def _value(value: Any) -> str:
    """Parts of a law by themselves, as in a product or a mixture."""
    if isinstance(value, Mapping):
        return in_words(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
