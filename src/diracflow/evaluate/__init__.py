"""Errors against exact densities, and reference solutions where there are none."""

from .errors import Errors, bootstrap_mean, errors
from .spectral_grid import SpectralGrid, transition_densities
from .study import Study, study

__all__ = [
    "Errors",
    "SpectralGrid",
    "Study",
    "bootstrap_mean",
    "errors",
    "study",
    "transition_densities",
]
