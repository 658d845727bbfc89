"""The built-in models by name."""

import inspect
import json
from collections.abc import Callable

from ..sde.sde import SDE
from ..transition.transition_density import AbstractTransitionDensity
from .constrained_models import CONSTRAINED_MODELS
from .linear_models import LINEAR_MODELS
from .model import Model
from .nonlinear_models import NONLINEAR_MODELS

MODELS: dict[str, Callable[..., Model]] = {
    make.__name__: make for make in (*LINEAR_MODELS, *NONLINEAR_MODELS, *CONSTRAINED_MODELS)
}


def model(name: str, **arguments: object) -> Model:
    """Return the built-in model `name`.

    **Arguments:**

    - `name`: a key of `MODELS`.
    - `arguments`: the arguments of the model.
    """
    if not isinstance(name, str) or name not in MODELS:
        raise ValueError(f"No built-in model is called {name!r}; there are {', '.join(MODELS)}.")
    known = inspect.signature(MODELS[name]).parameters
    unknown = sorted(set(arguments) - set(known))
    if unknown:
        raise ValueError(
            f"The model {name} has no argument {unknown[0]!r}; it has {', '.join(known) or 'none'}."
        )
    return MODELS[name](**arguments)


def exact_of(sde: SDE) -> AbstractTransitionDensity | None:
    """Return the exact density of the SDE of a built-in model, or `None` if it is not known."""
    return None if sde.origin is None else model(sde.origin[0], **json.loads(sde.origin[1])).exact
