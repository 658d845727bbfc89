"""Figures: one function each, returning a matplotlib `Figure`. Needs the extra `view`."""

from .densities import comparison, conditional, joint, moulding, section
from .histories import error_over_time, training_history

__all__ = [
    "comparison",
    "conditional",
    "error_over_time",
    "joint",
    "moulding",
    "section",
    "training_history",
]
