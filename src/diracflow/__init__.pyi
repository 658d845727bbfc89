"""Public names, for type checkers and for the lazy imports in `__init__.py`."""

from . import evaluate as evaluate
from . import models as models
from . import sweep as sweep
from . import view as view
from .density.composed import ComposedDensity as ComposedDensity
from .density.guard import OutsideWarning as OutsideWarning
from .density.guard import PrecisionWarning as PrecisionWarning
from .density.learned import TransitionDensity as TransitionDensity
from .density.model_file import (
    ModelFileError as ModelFileError,
)
from .density.model_file import (
    load as load,
)
from .distribution.abstract_distribution import AbstractDistribution as AbstractDistribution
from .equation.fokker_planck import log_density_rate as log_density_rate
from .equation.moving_frame import Frame as Frame
from .evaluate.errors import errors as errors
from .flow.coupling_flow import AbstractFlow as AbstractFlow
from .hidden.filtering import filter as filter
from .hidden.forecasts import forecast as forecast
from .hidden.smoothing import smooth as smooth
from .inference.likelihood import log_likelihood as log_likelihood
from .inference.likelihood import maximum_likelihood as maximum_likelihood
from .inference.posterior import infer as infer
from .learning.interface import learn as learn
from .learning.outcome import TrainingFailed as TrainingFailed
from .models.exact_densities import (
    ExactGeometricBrownian as ExactGeometricBrownian,
)
from .models.exact_densities import (
    ExactOrnsteinUhlenbeck as ExactOrnsteinUhlenbeck,
)
from .models.square_root import ExactCIR as ExactCIR
from .planning.plan import Plan as Plan
from .planning.prepare import plan as plan
from .planning.settings import Settings as Settings
from .sde.boundaries import BoundaryWarning as BoundaryWarning
from .sde.domains import (
    Interval as Interval,
)
from .sde.domains import (
    Positive as Positive,
)
from .sde.domains import (
    Real as Real,
)
from .sde.laws import (
    LogNormal as LogNormal,
)
from .sde.laws import (
    Normal as Normal,
)
from .sde.laws import (
    Product as Product,
)
from .sde.laws import (
    Uniform as Uniform,
)
from .sde.mixture import Mixture as Mixture
from .sde.problem import Problem as Problem
from .sde.sde import SDE as SDE
from .source.closure import ClosureSource as ClosureSource
from .source.gaussian_source import AbstractGaussianSource as AbstractGaussianSource
from .source.gaussian_source import EulerSource as EulerSource
from .source.gaussian_source import SourceDensity as SourceDensity
from .source.moments import MomentSource as MomentSource
from .training.checkpoint_file import (
    CheckpointError as CheckpointError,
)
from .training.checkpoint_file import (
    CheckpointWarning as CheckpointWarning,
)
from .training.checkpointer import TrainingTerminated as TrainingTerminated
from .training.multiprocess import ProcessLost as ProcessLost
from .training.state import Status as Status
from .training.threads import limit_threads as limit_threads
from .transition.query_progress import query_progress as query_progress
from .transition.transition_density import AbstractTransitionDensity as AbstractTransitionDensity
from .uses import numpyro as numpyro
from .uses.bridges import bridge as bridge
from .uses.green import propagate as propagate
from .uses.long_run import stationary as stationary
from .uses.observed import observed as observed
from .uses.simulation import simulate as simulate
from .uses.weights import WeightsVanished as WeightsVanished

__version__: str
