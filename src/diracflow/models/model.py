"""The type of built-in models, and checks of their arguments."""

import json
from collections.abc import Mapping

import equinox as eqx

from ..sde.argument_checks import checked_number
from ..sde.laws import AbstractLaw
from ..sde.sde import SDE, Origin
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


def origin_of(name: str, **arguments: object) -> Origin:
    """Return name and arguments of a built-in model as `SDE.origin`."""
    return name, json.dumps(arguments, default=lambda value: value.item())


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
