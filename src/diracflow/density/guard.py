"""Warnings for starts that a density was not trained for, and for queries in float32.

A network returns a number for every start. Far from the starts it was trained on that number may
be wrong. Starts outside the bulk of the start law therefore cause a warning, once for a density, or
an error if the caller wants one. Parameters of the SDE and start times count as part of the start.
"""

import warnings
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import jax
import numpy as np
from jaxtyping import Array, Float
from scipy.special import chdtrc

from ..sde.conditioning import OUTSIDE, ConditioningLaws, furthest
from ..transition.batching import in_batches
from ..transition.device_cache import compiled

# A large batch of draws of the law has some outside. Up to this part of a batch causes no warning,
# unless a start is further out than the furthest of that number of draws would be.
_FEW = 0.01
# Densities, by their provenance, that have warned already.
_WARNED: WeakSet = WeakSet()
# Small sets of starts found inside, and how many of them are kept for a density, so that repeated
# queries from a few starts are fast.
_INSIDE: WeakKeyDictionary = WeakKeyDictionary()
_SMALL, _KEPT = 64, 256


class OutsideWarning(UserWarning):
    """A density was evaluated for starts outside the law it was trained on."""


class PrecisionWarning(UserWarning):
    """A learned density was evaluated in float32, JAX's default; it was trained in float64."""


# The option of JAX; its type does not list its methods.
_x64: Any = jax.enable_x64
# `True` after the warning about float32, which is given once in a process.
_told = False


def tell_of_float32() -> None:
    """Warn, once in a process, that queries run in float32 by default and not by choice."""
    global _told  # noqa: PLW0603
    # Within `with jax.enable_x64(False)` float32 is wanted: the option itself is on.
    if _told or _x64.get_global():
        return
    _told = True
    warnings.warn(
        "Queries run in float32, JAX's default; the density was trained in float64. Use "
        '`jax.config.update("jax_enable_x64", True)` before the first query for float64. If '
        "float32 is accurate enough, filter out `diracflow.PrecisionWarning`.",
        PrecisionWarning,
        stacklevel=5,
    )


def known_inside(x0: Float[Array, "*batch d+k"], once_for: object) -> bool:
    """Return `True` if exactly these starts were found inside by an earlier call of `guard`."""
    if x0.size > _SMALL:
        return False
    values = np.asarray(x0)
    return (values.dtype, values.tobytes()) in _INSIDE.get(once_for, ())


def guard(
    scope: ConditioningLaws, x0: Float[Array, "*batch d+k"], strict: bool, once_for: object
) -> None:
    """Warn if more starts are outside than among draws of the law; if `strict`, raise for any."""
    if not strict and once_for in _WARNED:
        return
    no_time: Any = np.zeros(())
    # Known starts stay numbers within the user's `jit`.
    with jax.ensure_compile_time_eval():
        squared = np.asarray(in_batches(_squared_distances, scope, no_time, x0, divide=False))
    outside = squared > furthest(scope.freedom, OUTSIDE)
    if not np.any(outside):
        if x0.size <= _SMALL:
            values, found = np.asarray(x0), _INSIDE.setdefault(once_for, set())
            if len(found) >= _KEPT:
                found.clear()
            found.add((values.dtype, values.tobytes()))
        return
    if strict:
        raise ValueError(_message(scope, np.asarray(x0), squared, outside))
    if np.mean(outside) > _FEW or squared.size * chdtrc(scope.freedom, squared.max()) < OUTSIDE:
        _WARNED.add(once_for)
        message = _message(scope, np.asarray(x0), squared, outside)
        warnings.warn(message, OutsideWarning, stacklevel=5)


@compiled
def _squared_distances(scope: ConditioningLaws, t: Array, x0: Float[Array, "*batch d+k"]) -> Array:
    return scope.squared_distance(x0)


def _message(
    scope: ConditioningLaws, x0: np.ndarray, squared: np.ndarray, outside: np.ndarray
) -> str:
    furthest = x0.reshape(-1, x0.shape[-1])[np.argmax(squared)]
    beyond = chdtrc(scope.freedom, squared.max())
    return (
        f"{np.sum(outside)} of {outside.size} starts lie outside the law that the density was "
        f"trained on; the furthest is {_shown(scope, furthest)}, with {beyond:.1g} of the law "
        f"beyond it (in the bulk: at least {OUTSIDE:g}). The density may be wrong there: learn it "
        f"with wider {'laws' if scope.names else '`starts`'}, or look at its `certificate`."
    )


def _shown(scope: ConditioningLaws, g: np.ndarray) -> str:
    start, tail = np.split(g, [scope.starts.dim or 1])
    names = (*scope.names, "start_time")[: len(tail)]
    values = (f", {name}={value:g}" for name, value in zip(names, tail, strict=True))
    return f"x0={start.tolist()}" + "".join(values)
