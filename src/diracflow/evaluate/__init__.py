"""Error measures against exact densities, and reference solutions."""

from .errors import Errors as Errors
from .errors import Study as Study
from .errors import bootstrap_mean as bootstrap_mean
from .errors import errors as errors
from .errors import study as study
from .path_reference import MeasuredDistance as MeasuredDistance
from .path_reference import Reference as Reference
from .path_reference import measured_distance as measured_distance
from .path_reference import reference as reference
from .predictive import Comparison as Comparison
from .predictive import PredictiveCheck as PredictiveCheck
from .predictive import compare as compare
from .predictive import filter_check as filter_check
from .predictive import path_check as path_check
from .references import HestonMarginals as HestonMarginals
from .references import Kalman as Kalman
from .references import Marginal as Marginal
from .references import kalman_filter as kalman_filter
from .references import kalman_smoother as kalman_smoother
from .references import marginals as marginals
from .spectral_grid import SpectralGrid as SpectralGrid
from .spectral_grid import transition_densities as transition_densities
