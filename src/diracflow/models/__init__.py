"""Built-in models: SDE, start law, horizon and, where it is known, the exact density."""

from .catalogue import (
    MODELS,
    benes,
    brownian,
    double_well,
    double_well_chain,
    duffing,
    exact_of,
    langevin,
    linear_langevin,
    model,
    ornstein_uhlenbeck,
    ornstein_uhlenbeck_family,
    seasonal,
    sheared,
    van_der_pol,
)
from .constrained_families import cir_family, geometric_brownian_family
from .constrained_models import cir, ckls, geometric_brownian, heston, jacobi, lotka_volterra
from .model import Model

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
