"""Figures, one function each, returning a matplotlib `Figure`, and a page of them: `report`.

Needs the extra `view`.
"""

from .densities import comparison, conditional, joint, moulding, section
from .histories import certificate_over_time, error_over_time, training_history
from .lines import lines, planes, spread
from .pairs import pairs
from .paths import bridge_fan, filter_bands
from .posteriors import posterior_pairs, propagated
from .report import report

__all__ = [
    "bridge_fan",
    "certificate_over_time",
    "comparison",
    "conditional",
    "error_over_time",
    "filter_bands",
    "joint",
    "lines",
    "moulding",
    "pairs",
    "planes",
    "posterior_pairs",
    "propagated",
    "report",
    "section",
    "spread",
    "training_history",
]
