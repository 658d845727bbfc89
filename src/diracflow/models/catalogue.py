"""The built-in models by name."""

import inspect
import json
from collections.abc import Callable

from ..sde.sde import SDE
from ..transition.transition_density import AbstractTransitionDensity
from .constrained_models import (
    cir,
    cir_family,
    ckls,
    geometric_brownian,
    geometric_brownian_family,
    heston,
    jacobi,
    lotka_volterra,
)
from .linear_models import (
    brownian,
    linear_langevin,
    ornstein_uhlenbeck,
    ornstein_uhlenbeck_family,
    seasonal,
)
from .model import Model
from .nonlinear_models import (
    benes,
    double_well,
    double_well_chain,
    duffing,
    langevin,
    sheared,
    van_der_pol,
)

MODELS: dict[str, Callable[..., Model]] = {
    "brownian": brownian,
    "ornstein_uhlenbeck": ornstein_uhlenbeck,
    "ornstein_uhlenbeck_family": ornstein_uhlenbeck_family,
    "seasonal": seasonal,
    "benes": benes,
    "sheared": sheared,
    "geometric_brownian": geometric_brownian,
    "geometric_brownian_family": geometric_brownian_family,
    "cir": cir,
    "cir_family": cir_family,
    "ckls": ckls,
    "jacobi": jacobi,
    "lotka_volterra": lotka_volterra,
    "heston": heston,
    "linear_langevin": linear_langevin,
    "langevin": langevin,
    "duffing": duffing,
    "van_der_pol": van_der_pol,
    "double_well": double_well,
    "double_well_chain": double_well_chain,
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
