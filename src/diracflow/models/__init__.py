"""Built-in models: SDE, start law, horizon and, if known, the exact density."""

from .catalogue import MODELS, exact_of, model
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

__all__ = [
    "MODELS",
    "Model",
    "benes",
    "brownian",
    "cir",
    "cir_family",
    "ckls",
    "double_well",
    "double_well_chain",
    "duffing",
    "exact_of",
    "geometric_brownian",
    "geometric_brownian_family",
    "heston",
    "jacobi",
    "langevin",
    "linear_langevin",
    "lotka_volterra",
    "model",
    "ornstein_uhlenbeck",
    "ornstein_uhlenbeck_family",
    "seasonal",
    "sheared",
    "van_der_pol",
]
