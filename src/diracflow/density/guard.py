"""Queries for which a density was not made.

A network answers every question. Far from the starts it was trained on its answer is a number like
any other, and may be wrong. So starts outside the bulk of the start law are announced: once as a
warning, or as an error where the caller asks for one. Parameters of the SDE and times of the start
count with the start.
"""

import warnings
from typing import Any
from weakref import WeakSet

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from scipy.special import chdtrc

from ..sde.chart import Chart
from ..sde.conditioning import ConditioningLaws, furthest
from ..transition.batching import in_pieces
from ..transition.device_cache import compiled

# Starts further out than all but this share of the start law are outside.
OUTSIDE = 1e-4
# A large batch of draws of the law itself has some outside; up to this share none is announced,
# unless it is further out than so many draws would be.
_FEW = 0.01
# What has been warned of already.
_WARNED: WeakSet = WeakSet()


class OutsideWarning(UserWarning):
    """A density was asked for starts outside the law it was trained on."""


def outside_starts(
    scope: ConditioningLaws, chart: Chart, g: Float[Array, "n d+k"]
) -> Bool[Array, " n"]:
    """Which starts, in the coordinates of a chart, are outside."""
    y, rest = jnp.split(g, [len(chart.maps)], axis=1)
    return scope.outside(jnp.concatenate([jax.vmap(chart.from_real)(y), rest], axis=1), OUTSIDE)


def guard(
    scope: ConditioningLaws, x0: Float[Array, "*batch d+k"], strict: bool, once_for: object
) -> None:
    """Warn if starts are outside as draws of the law would not be; if `strict`, raise for any."""
    if not strict and once_for in _WARNED:
        return
    distances = lambda _, g: _squared_distances(scope, g)
    no_time: Any = np.zeros(())
    # While parameters are searched for under `jit`, known starts stay numbers.
    with jax.ensure_compile_time_eval():
        squared = np.asarray(in_pieces(distances, no_time, x0))
    outside = squared > furthest(scope.freedom, OUTSIDE)
    if not np.any(outside):
        return
    if strict:
        raise ValueError(_message(scope, np.asarray(x0), squared, outside))
    if np.mean(outside) > _FEW or squared.size * chdtrc(scope.freedom, squared.max()) < OUTSIDE:
        _WARNED.add(once_for)
        message = _message(scope, np.asarray(x0), squared, outside)
        warnings.warn(message, OutsideWarning, stacklevel=5)


@compiled
def _squared_distances(
    scope: ConditioningLaws, x0: Float[Array, "*batch d+k"]
) -> Float[Array, "*batch"]:
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
