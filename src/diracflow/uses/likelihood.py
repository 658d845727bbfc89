r"""Likelihood of discretely observed paths.

By the Markov property the states $x_0, \dots, x_n$ seen at times $t_0 < \dots < t_n$ have the joint
density $\prod_i \rho(x_i | t_i - t_{i-1}, x_{i-1})$ given the first. No step is subdivided, so the
likelihood is as exact as the transition density, however long the gaps. Where the density depends
on the time of the start, that of a transition is the time $t_{i-1}$ of its first state.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int

from ..sde.argument_checks import checked_batch, real_numbers
from ..sde.parameters import Params, check_names
from ..transition.programs import log_probs
from ..transition.transition_density import (
    AbstractTransitionDensity,
    checked_query,
    require_density,
)


class Transitions(eqx.Module):
    """Observed paths cut into single transitions, one a row."""

    gaps: Float[Array, " n"]
    begins: Float[Array, " n"]  # when transitions start
    before: Float[Array, "n d"]
    after: Float[Array, "n d"]
    path: Int[np.ndarray, " n"]  # which path a transition belongs to
    batch: tuple[int, ...] = eqx.field(static=True)  # leading axes of the paths

    def log_prob(
        self, density: AbstractTransitionDensity, params: Params | None = None
    ) -> Float[Array, "*batch"]:
        """Sum of the log-densities of each path's transitions."""
        given = {} if params is None else params
        check_names(density.params, given)
        given = {name: self._spread(name, value) for name, value in given.items()}
        times = self.begins if density.start_time is None else None
        t, x, start = checked_query(
            density, self.gaps, given, start_time=times, x=self.after, x0=self.before
        )
        return _path_sums(density._restricted(t), t, x, start, self.path, self.batch)

    def _spread(self, name: str, value: ArrayLike) -> Array:
        """A parameter for each transition, from one for each path."""
        values = real_numbers(name, value)
        if values.ndim == 0:
            return values
        if checked_batch(**{"paths": self.batch, name: values.shape}) != self.batch:
            raise ValueError(
                f"`{name}` must be one number or one for each path, of shape {self.batch}; got "
                f"shape {values.shape}."
            )
        return jnp.broadcast_to(values, self.batch).reshape(-1)[self.path]


def log_likelihood(
    density: AbstractTransitionDensity,
    times: Float[ArrayLike, "*batch n+1"],
    states: Float[ArrayLike, "*batch n+1 d"],
    params: Params | None = None,
) -> Float[Array, "*batch"]:
    r"""Log-likelihood of paths observed at discrete times, given their first states.

    **Arguments:**

    - `density`: a transition density, learned or exact.
    - `times`: increasing, not necessarily even; every gap within the density's horizon.
    - `states`: the state at each time. Leading axes stand for independent paths, which may share
        `times`. A row of NaN is a missing observation: its two gaps become one. (Only where values
        are known; under `jit` or `grad` in `states` leave such rows out.)
    - `params`: parameters of the SDE, if the density has any; scalars or one value for each path.

    **Returns:**

    One number for each path; add them up for the likelihood of all. Differentiable in `states`,
    `times` and `params`. Only gaps count, unless the density depends on the time of the start, as
    one does that was learned over a law of start times: then the times themselves count, too.
    """
    return transitions(density, times, states).log_prob(density, params)


def transitions(
    density: AbstractTransitionDensity, times: ArrayLike, states: ArrayLike
) -> Transitions:
    """Check observed paths and cut them into transitions."""
    require_density(density)
    t, x = _table(density, times, states)
    batch, length = x.shape[:-2], x.shape[-2]
    before, after = _neighbours(_seen(x).reshape(-1, length))
    t, rows = t.reshape(-1), x.reshape(-1, density.dim)
    gaps = t[after] - t[before]
    if isinstance(gaps, np.ndarray):
        _check_gaps(density, gaps)
        gaps = _common(gaps)
    return Transitions(gaps, t[before], rows[before], rows[after], before // length, batch)


def _table(
    density: AbstractTransitionDensity, times: ArrayLike, states: ArrayLike
) -> tuple[Any, Any]:
    """Times and states of one leading shape; in NumPy where values are known."""
    t, x = _known(real_numbers("times", times)), _known(real_numbers("states", states))
    if x.ndim < 2 or x.shape[-1] != density.dim or t.ndim < 1 or t.shape[-1] != x.shape[-2]:
        raise ValueError(
            f"`states` must have shape (..., times, {density.dim}) and `times` one entry for each "
            f"of its rows; got shapes {x.shape} and {t.shape}."
        )
    if isinstance(t, np.ndarray) and not np.all(np.isfinite(t)):
        raise ValueError("`times` must be finite.")
    batch = checked_batch(times=t.shape[:-1], states=x.shape[:-2])
    return _broadcast(t, (*batch, t.shape[-1])), _broadcast(x, (*batch, *x.shape[-2:]))


def _known(values: Array) -> Array | np.ndarray:
    # In NumPy gaps stay known within the user's `jit`, as samplers and optimisers have it.
    return values if isinstance(values, jax.core.Tracer) else np.asarray(values)


def _broadcast(values: Array | np.ndarray, shape: tuple[int, ...]) -> Any:
    library = np if isinstance(values, np.ndarray) else jnp
    return library.broadcast_to(values, shape)


def _seen(x: Array | np.ndarray) -> np.ndarray:
    """Which rows are observed. Values that JAX traces are taken as observed."""
    if not isinstance(x, np.ndarray):
        return np.ones(x.shape[:-1], bool)
    missing = np.isnan(x)
    if np.any(missing.any(axis=-1) != missing.all(axis=-1)):
        raise ValueError(
            "`states` has rows with some components NaN and others not; a transition density needs "
            "whole states. Make the row NaN to leave it out."
        )
    if np.any(np.isinf(x)):
        raise ValueError("`states` must be finite, or NaN where an observation is missing.")
    return ~missing[..., 0]


def _neighbours(seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Flat indices of each two consecutive observed rows of a path."""
    if len(seen) == 0 or np.any(seen.sum(axis=1) < 2):
        raise ValueError(
            "A path needs at least two observed states; got one with "
            f"{int(seen.sum(axis=1).min(initial=seen.shape[1])) if len(seen) else 0}."
        )
    rows = np.flatnonzero(seen)
    same_path = np.diff(rows // seen.shape[1]) == 0
    return rows[:-1][same_path], rows[1:][same_path]


def _check_gaps(density: AbstractTransitionDensity, gaps: np.ndarray) -> None:
    if np.any(gaps <= 0):
        raise ValueError(
            f"`times` must increase along each path; {np.sum(gaps == 0)} gaps are zero and "
            f"{np.sum(gaps < 0)} negative. Sort the observations and merge those of one time."
        )
    # The same allowance for rounding as in every query.
    beyond = gaps > density.horizon * (1 + 1e-6)
    if np.any(beyond):
        raise ValueError(
            f"{beyond.sum()} of {gaps.size} gaps between observations are longer than the horizon "
            f"{density.horizon:g} of the density; the longest is {gaps.max():g}."
            f"{density._why_horizon()}"
        )


def _common(gaps: np.ndarray) -> np.ndarray:
    """One gap if all are equal but for rounding: what depends on time is then computed once."""
    even = np.allclose(gaps, gaps[0], rtol=1e-12 if gaps.dtype == np.float64 else 1e-6, atol=0)
    return gaps[:1] if even else gaps


@eqx.filter_jit
def _path_sums(
    density: AbstractTransitionDensity,
    t: Array,
    x: Array,
    start: Array,
    path: np.ndarray,
    batch: tuple[int, ...],
) -> Float[Array, "*batch"]:
    terms = log_probs(density, t, x, start)
    return jax.ops.segment_sum(terms, path, int(np.prod(batch, dtype=int))).reshape(batch)
