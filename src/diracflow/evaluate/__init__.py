"""Errors against exact densities."""

from .errors import Errors, bootstrap_mean, errors
from .study import Study, study

__all__ = ["Errors", "Study", "bootstrap_mean", "errors", "study"]
