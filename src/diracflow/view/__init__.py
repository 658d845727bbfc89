"""Figures: one function each, returning a matplotlib `Figure`. Needs the extra `view`."""

from .densities import comparison, conditional, joint, moulding, section
from .histories import error_over_time, training_history
from .inference import posterior_pairs, propagated
from .lines import lines, planes
from .paths import bridge_fan, filter_bands

__all__ = [
    "bridge_fan",
    "comparison",
    "conditional",
    "error_over_time",
    "filter_bands",
    "joint",
    "lines",
    "moulding",
    "planes",
    "posterior_pairs",
    "propagated",
    "section",
    "training_history",
]
