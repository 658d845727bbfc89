"""The type of built-in models, and checks of their arguments."""

import dataclasses
import functools
import inspect
import json
from collections.abc import Callable, Mapping
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
        model, bound = make(*args, **kwargs), signature.bind(*args, **kwargs)
        bound.apply_defaults()
        arguments = json.dumps(bound.arguments, default=lambda value: np.asarray(value).tolist())
        return dataclasses.replace(model, sde=model.sde.with_origin((model.name, arguments)))

    MODELS[make.__name__] = marked
    return marked


def require_positive(**numbers: float) -> None:
    """Raise if an argument of a model is not a positive number."""
    require_finite(**numbers)
    for name, value in numbers.items():
        if value <= 0:
            raise ValueError(f"`{name}` must be a positive number; got {value}.")


def require_finite(**numbers: float) -> None:
    """Raise if an argument of a model is not one finite number."""
    for name, value in numbers.items():
        checked_number(name, value)
