"""Error measures against exact densities, and reference solutions."""

from .errors import Errors as Errors
from .errors import Study as Study
from .errors import bootstrap_mean as bootstrap_mean
from .errors import errors as errors
from .errors import study as study
from .kalman import Kalman as Kalman
from .kalman import kalman_filter as kalman_filter
from .marginals import HestonMarginals as HestonMarginals
from .marginals import Marginal as Marginal
from .marginals import marginals as marginals
from .spectral_grid import SpectralGrid as SpectralGrid
from .spectral_grid import transition_densities as transition_densities
