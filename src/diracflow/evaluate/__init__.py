"""Error measures against exact densities, and reference solutions."""

from .errors import Errors, bootstrap_mean, errors
from .heston import HestonMarginals
from .kalman import Kalman, kalman_filter
from .marginals import Marginal, marginals
from .spectral_grid import SpectralGrid, transition_densities
from .study import Study, study

__all__ = [
    "Errors",
    "HestonMarginals",
    "Kalman",
    "Marginal",
    "SpectralGrid",
    "Study",
    "bootstrap_mean",
    "errors",
    "kalman_filter",
    "marginals",
    "study",
    "transition_densities",
]
