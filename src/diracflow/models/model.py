"""What a ready-made problem consists of."""

import json
from collections.abc import Mapping

import equinox as eqx

from ..sde.argument_checks import checked_number
from ..sde.laws import AbstractLaw
from ..sde.sde import SDE, Origin
from ..transition.transition_density import AbstractTransitionDensity


class Model(eqx.Module):
    """An SDE with what is needed to learn it and to judge the result."""

    name: str = eqx.field(static=True)
    sde: SDE
    starts: AbstractLaw
    horizon: float = eqx.field(static=True)
    exact: AbstractTransitionDensity | None
    params: Mapping[str, AbstractLaw] = eqx.field(default_factory=dict)  # laws of the parameters
    start_time: float | AbstractLaw = 0.0  # or the law of it


def origin_of(name: str, **arguments: object) -> Origin:
    """Name and arguments of a built-in model, as files hold them."""
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
