"""Figures as functions that return a matplotlib `Figure`, and an HTML page of them: `report`.

It imports matplotlib.
"""

from .densities import comparison as comparison
from .densities import conditional as conditional
from .densities import joint as joint
from .densities import lines as lines
from .densities import moulding as moulding
from .densities import planes as planes
from .densities import propagated as propagated
from .densities import section as section
from .densities import spread as spread
from .one_panel import history_panel as history_panel
from .one_panel import one_panel as one_panel
from .over_time import bridge_fan as bridge_fan
from .over_time import certificate_over_time as certificate_over_time
from .over_time import error_over_time as error_over_time
from .over_time import filter_bands as filter_bands
from .over_time import forecast_fan as forecast_fan
from .over_time import training_history as training_history
from .pairs import pairs as pairs
from .pairs import posterior_pairs as posterior_pairs
from .report import report as report
from .series_report import series_report as series_report
