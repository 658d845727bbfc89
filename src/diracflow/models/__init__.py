"""Built-in models: SDE, start law, horizon and, if known, the exact density."""

from .catalogue import MODELS as MODELS
from .catalogue import Model as Model
from .catalogue import exact_of as exact_of
from .catalogue import model as model
from .constrained_models import cir as cir
from .constrained_models import cir_family as cir_family
from .constrained_models import ckls as ckls
from .constrained_models import geometric_brownian as geometric_brownian
from .constrained_models import geometric_brownian_family as geometric_brownian_family
from .constrained_models import heston as heston
from .constrained_models import jacobi as jacobi
from .constrained_models import lotka_volterra as lotka_volterra
from .linear_models import brownian as brownian
from .linear_models import linear_langevin as linear_langevin
from .linear_models import ornstein_uhlenbeck as ornstein_uhlenbeck
from .linear_models import ornstein_uhlenbeck_family as ornstein_uhlenbeck_family
from .linear_models import seasonal as seasonal
from .nonlinear_models import benes as benes
from .nonlinear_models import double_well as double_well
from .nonlinear_models import double_well_chain as double_well_chain
from .nonlinear_models import duffing as duffing
from .nonlinear_models import langevin as langevin
from .nonlinear_models import sheared as sheared
from .nonlinear_models import van_der_pol as van_der_pol
