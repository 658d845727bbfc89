"""SDEs and models that a user's Python file defines: `FILE.py:NAME`."""

import runpy
import traceback
from pathlib import Path
from typing import Any

from ..models.catalogue import Model
from ..sde.sde import SDE


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
