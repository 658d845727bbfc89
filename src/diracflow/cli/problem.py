"""SDEs and laws on the command line: `FILE.py:NAME`, and JSON."""

import json
import runpy
import traceback
from pathlib import Path
from typing import Any

from ..problem.laws import AbstractLaw, law_from
from ..problem.models import Model
from ..problem.sde import SDE


def named_object(text: str) -> SDE | Model:
    """What `NAME` stands for in the Python file of the user."""
    file, colon, name = text.rpartition(":")
    if not colon or not file or not name:
        raise ValueError(f"An SDE is named as FILE.py:NAME; got {text!r}.")
    if not Path(file).is_file():
        raise FileNotFoundError(f"No Python file at {file}.")
    names = _run(file)
    if name not in names:
        known = [key for key, value in names.items() if isinstance(value, SDE | Model)]
        raise ValueError(f"{file} defines no {name!r}; SDEs and models there: {known or 'none'}.")
    found = names[name]
    if not isinstance(found, SDE | Model):
        raise ValueError(
            f"{text} must be a `diracflow.SDE`; found {type(found).__name__}. A "
            "`diracflow.models.Model` will do, too."
        )
    return found


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


def _run(file: str) -> dict[str, Any]:
    try:
        return runpy.run_path(file, run_name="diracflow_problem")
    except (Exception, SystemExit) as error:
        raise ValueError(
            f"{file} could not be run: {type(error).__name__}: {error}{_where(file, error)}"
        ) from error


def _where(file: str, error: BaseException) -> str:
    """The last line of the user's own file that led to an error."""
    if isinstance(error, SyntaxError):  # and its message says where
        return f"\n  {(error.text or '').strip()}" if error.text else ""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
    return f"\n  line {frames[-1].lineno}: {frames[-1].line}" if frames else ""
