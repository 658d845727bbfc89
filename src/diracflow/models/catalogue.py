"""The type of models, and models by name: built-in ones, and those in a Python file of the user."""

import dataclasses
import functools
import inspect
import json
import runpy
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ParamSpec

import equinox as eqx
import numpy as np

from ..sde.argument_checks import checked_number
from ..sde.laws import AbstractLaw
from ..sde.sde import SDE
from ..transition.transition_density import AbstractTransitionDensity


class Model(eqx.Module):
    """An SDE with everything that is needed to learn it and to check the result.

    **Arguments:**

    - `name`: name of the model.
    - `sde`: the SDE.
    - `starts`: law of the start.
    - `horizon`: time up to which to learn the density.
    - `exact`: the exact density, or `None` if it is not known.
    - `params`: laws of the parameters, by name.
    - `start_time`: the start time, or its law.
    """

    name: str = eqx.field(static=True)
    sde: SDE
    starts: AbstractLaw
    horizon: float = eqx.field(static=True)
    exact: AbstractTransitionDensity | None
    params: Mapping[str, AbstractLaw] = eqx.field(default_factory=dict)
    start_time: float | AbstractLaw = 0.0


P = ParamSpec("P")


# The built-in models by name.
MODELS: dict[str, Callable[..., Model]] = {}


def built_in(make: Callable[P, Model]) -> Callable[P, Model]:
    """Register a model, and store its name and arguments in its SDE, so that files restore it."""
    signature = inspect.signature(make)

    @functools.wraps(make)
    def marked(*args: P.args, **kwargs: P.kwargs) -> Model:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        for name, value in bound.arguments.items():
            if signature.parameters[name].annotation is float:
                checked_number(name, value)
        model = make(*args, **kwargs)
        arguments = json.dumps(bound.arguments, default=lambda value: np.asarray(value).tolist())
        return dataclasses.replace(model, sde=model.sde.with_origin((model.name, arguments)))

    MODELS[make.__name__] = marked
    return marked


def require_positive(**numbers: float) -> None:
    """Raise if an argument of a model is not a positive number."""
    for name, value in numbers.items():
        if checked_number(name, value) <= 0:
            raise ValueError(f"`{name}` must be a positive number; got {value}.")


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
