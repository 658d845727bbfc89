"""SDEs and laws on the command line: `FILE.py:NAME`, and JSON."""

import json

from ..models.user_file import named_object
from ..sde.laws import AbstractLaw, law_from

__all__ = ["named_object", "read_law", "read_laws", "read_number_or_law"]


def read_law(text: str) -> AbstractLaw:
    """A law written as JSON, as model files hold it."""
    try:
        return law_from(json.loads(text))
    except (json.JSONDecodeError, AttributeError, TypeError, KeyError) as error:
        example = '{"law": "Normal", "mean": 0, "std": 1}'
        raise ValueError(
            f"A law is written as JSON, such as '{example}'; got {text!r} ({error})."
        ) from error


def read_laws(option: str, text: str) -> dict[str, AbstractLaw]:
    """A law for each parameter, written as JSON."""
    try:
        laws = json.loads(text)
        return {name: read_law(json.dumps(law)) for name, law in laws.items()}
    except (json.JSONDecodeError, AttributeError) as error:
        raise ValueError(
            f"`{option}` maps parameters to laws as JSON, such as "
            f"""'{{"rate": {{"law": "LogNormal", "mean": 0, "std": 1}}}}'; got {text!r}."""
        ) from error


def read_number_or_law(text: str) -> float | AbstractLaw:
    """A number, or else a law written as JSON."""
    try:
        return float(text)
    except ValueError:
        return read_law(text)
