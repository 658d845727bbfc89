"""Errors against exact densities, and reference solutions where there are none."""

from .errors import Errors, bootstrap_mean, errors
from .kalman import Kalman, kalman_filter
from .spectral_grid import SpectralGrid, transition_densities
from .study import Study, study

__all__ = [
    "Errors",
    "Kalman",
    "SpectralGrid",
    "Study",
    "bootstrap_mean",
    "errors",
    "kalman_filter",
    "study",
    "transition_densities",
]
