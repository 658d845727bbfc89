"""Queries for which a density was not made.

A network answers every question. Far from the starts it was trained on its answer is a number like
any other, and may be wrong. So starts outside the bulk of the start law are announced: once as a
warning, or as an error where the caller asks for one.
"""

import warnings
from weakref import WeakSet

import numpy as np
from jaxtyping import Array, Float
from scipy.stats import chi2

from ..problem.laws import AbstractLaw

# Starts further out than all but this share of the start law are outside.
OUTSIDE = 1e-4
# A large batch of draws of the law itself has some outside; up to this share none is announced,
# unless it is further out than so many draws would be.
_FEW = 0.01
# What has been warned of already.
_WARNED: WeakSet = WeakSet()


class OutsideWarning(UserWarning):
    """A density was asked for starts outside the law it was trained on."""


def furthest(dim: int) -> float:
    """Squared distance from the centre of the start law beyond which starts are outside."""
    return float(chi2.isf(OUTSIDE, dim))


def guard(
    starts: AbstractLaw, x0: Float[Array, "*batch d"], strict: bool, once_for: object
) -> None:
    """Warn if starts are outside as draws of the law would not be; if `strict`, raise for any."""
    if not strict and once_for in _WARNED:
        return
    squared = np.asarray(starts.squared_distance(x0))
    outside = squared > furthest(x0.shape[-1])
    if not np.any(outside):
        return
    if strict:
        raise ValueError(_message(np.asarray(x0), squared, outside))
    if np.mean(outside) > _FEW or squared.size * chi2.sf(squared.max(), x0.shape[-1]) < OUTSIDE:
        _WARNED.add(once_for)
        warnings.warn(_message(np.asarray(x0), squared, outside), OutsideWarning, stacklevel=5)


def _message(x0: np.ndarray, squared: np.ndarray, outside: np.ndarray) -> str:
    furthest = x0.reshape(-1, x0.shape[-1])[np.argmax(squared)]
    beyond = chi2.sf(squared.max(), x0.shape[-1])
    return (
        f"{np.sum(outside)} of {outside.size} starts lie outside the law that the density was "
        f"trained on; the furthest is x0={furthest.tolist()}, with {beyond:.1g} of the law beyond "
        f"it (in the bulk: at least {OUTSIDE:g}). The density may be wrong there: learn it with "
        "wider `starts`, or look at its `certificate`."
    )
