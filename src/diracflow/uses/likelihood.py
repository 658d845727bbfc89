r"""Likelihood of discretely observed paths.

By the Markov property the states $x_0, \dots, x_n$ seen at times $t_0 < \dots < t_n$ have the joint
density $\prod_i \rho(x_i | t_i - t_{i-1}, x_{i-1})$ given the first. No step is subdivided, so the
likelihood is as exact as the transition density, whatever the length of the gaps. If the density
depends on the start time, the start time of a transition is $t_{i-1}$.
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
    """Observed paths split into single transitions, one per row."""

    gaps: Float[Array, " n"]
    begins: Float[Array, " n"]  # times at which transitions start
    before: Float[Array, "n d"]
    after: Float[Array, "n d"]
    path: Int[np.ndarray, " n"]  # index of the path of each transition
    batch: tuple[int, ...] = eqx.field(static=True)  # leading axes of the paths

    def log_prob(
        self, density: AbstractTransitionDensity, params: Params | None = None
    ) -> Float[Array, "*batch"]:
        """Return the log-likelihood of each path."""
        params = {} if params is None else params
        check_names(density.params, params)
        spread = {name: self._spread(name, value) for name, value in params.items()}
        times = self.begins if density.start_time is None else None
        t, x, start = checked_query(
            density, self.gaps, spread, start_time=times, x=self.after, x0=self.before
        )
        return _path_sums(density._restricted(t), t, x, start, self.path, self.batch)

    def _spread(self, name: str, value: ArrayLike) -> Array:
        """Return a parameter value for each transition, from one for each path."""
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
    r"""Return the log-likelihood of paths observed at discrete times, given their first states.

    **Arguments:**

    - `density`: a transition density, learned or exact.
    - `times`: increasing times, evenly spaced or not; every gap within the density's horizon.
    - `states`: the state at each time. Leading axes stand for independent paths, which may share
        `times`. A row of NaN is a missing observation: its two gaps become one. Under `jit` or
        `grad` in `states` values are not known, so such rows must be left out.
    - `params`: parameters of the SDE, if the density has any; scalars or one value for each path.

    **Returns:**

    One number for each path; their sum is the log-likelihood of all paths. It is differentiable in
    `states`, `times` and `params`. Only the gaps between times matter, unless the density depends
    on the start time.
    """
    return transitions(density, times, states).log_prob(density, params)


def transitions(
    density: AbstractTransitionDensity, times: ArrayLike, states: ArrayLike
) -> Transitions:
    """Check observed paths and split them into transitions."""
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
    """Return times and states with equal leading axes, as NumPy arrays if values are known."""
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
    # NumPy arrays stay concrete inside the `jit` of a sampler or optimiser.
    return values if isinstance(values, jax.core.Tracer) else np.asarray(values)


def _broadcast(values: Array | np.ndarray, shape: tuple[int, ...]) -> Any:
    library = np if isinstance(values, np.ndarray) else jnp
    return library.broadcast_to(values, shape)


def _seen(x: Array | np.ndarray) -> np.ndarray:
    """Return a mask of the observed rows. Traced values count as observed."""
    if not isinstance(x, np.ndarray):
        return np.ones(x.shape[:-1], bool)
    missing = np.isnan(x)
    if np.any(missing.any(axis=-1) != missing.all(axis=-1)):
        raise ValueError(
            "`states` has rows with some components NaN and others not; a transition density needs "
            "all components. Set the whole row to NaN to leave it out."
        )
    if np.any(np.isinf(x)):
        raise ValueError("`states` must be finite, or NaN if an observation is missing.")
    return ~missing[..., 0]


def _neighbours(seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the flat indices of all pairs of consecutive observed rows of a path."""
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
    # The same tolerance for rounding as in every query.
    beyond = gaps > density.horizon * (1 + 1e-6)
    if np.any(beyond):
        raise ValueError(
            f"{beyond.sum()} of {gaps.size} gaps between observations are longer than the horizon "
            f"{density.horizon:g} of the density; the longest is {gaps.max():g}."
            f"{density._why_horizon()}"
        )


def _common(gaps: np.ndarray) -> np.ndarray:
    """Return one gap if all are equal up to rounding, so that terms in time are computed once."""
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
