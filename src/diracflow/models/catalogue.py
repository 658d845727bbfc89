"""Models by name: the built-in ones, and those in a Python file of the user."""

import inspect
import json
import runpy
import traceback
from pathlib import Path

from ..sde.sde import SDE
from ..transition.transition_density import AbstractTransitionDensity
from .model import MODELS, Model


def model(name: str, **arguments: object) -> Model:
    """Return the built-in model `name`.

    **Arguments:**

    - `name`: a key of `MODELS`.
    - `arguments`: the arguments of the model.
    """
    if not isinstance(name, str) or name not in MODELS:
        known = ", ".join(sorted(MODELS))
        raise ValueError(f"No built-in model is called {name!r}; there are {known}.")
    expected = inspect.signature(MODELS[name]).parameters
    unknown = sorted(set(arguments) - set(expected))
    if unknown:
        has = ", ".join(expected) or "none"
        raise ValueError(f"The model {name} has no argument {unknown[0]!r}; it has {has}.")
    return MODELS[name](**arguments)


def exact_of(sde: SDE) -> AbstractTransitionDensity | None:
    """Return the exact density of the SDE of a built-in model, or `None` if it is not known."""
    return None if sde.origin is None else model(sde.origin[0], **json.loads(sde.origin[1])).exact


def named_object(text: str) -> SDE | Model:
    """Return the object `NAME` of the file in `text`, which has the form `FILE.py:NAME`."""
    file, colon, name = text.rpartition(":")
    if not colon or not file or not name:
        raise ValueError(f"An SDE is named as FILE.py:NAME; got {text!r}.")
    if not Path(file).is_file():
        raise FileNotFoundError(f"No Python file at {file}.")
    try:
        names = runpy.run_path(file, run_name="diracflow_problem")
    except (Exception, SystemExit) as error:
        raise ValueError(
            f"{file} could not be run: {type(error).__name__}: {error}{_where(file, error)}"
        ) from error
    if name not in names:
        known = [key for key, value in names.items() if isinstance(value, SDE | Model)]
        raise ValueError(f"{file} defines no {name!r}; SDEs and models there: {known or 'none'}.")
    found = names[name]
    if not isinstance(found, SDE | Model):
        raise ValueError(
            f"{text} must be a `diracflow.SDE` or a `diracflow.models.Model`; found "
            f"{type(found).__name__}."
        )
    return found


def _where(file: str, error: BaseException) -> str:
    """Return the last line of the user's file in the traceback of an error."""
    if isinstance(error, SyntaxError):  # its message contains the position
        return f"\n  {(error.text or '').strip()}" if error.text else ""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
    return f"\n  line {frames[-1].lineno}: {frames[-1].line}" if frames else ""
