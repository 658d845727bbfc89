"""Figures as functions that return a matplotlib `Figure`, and an HTML page of them: `report`.

This package needs the extra `view`.
"""

from .densities import comparison, conditional, joint, moulding, propagated, section
from .histories import certificate_over_time, error_over_time, training_history
from .lines import lines, planes, spread
from .pairs import pairs, posterior_pairs
from .paths import bridge_fan, filter_bands
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
