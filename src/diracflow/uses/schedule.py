"""When a filter moves and what it sees: times and observations as a list of jumps."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from ..sde.argument_checks import real_numbers


class Schedule(eqx.Module):
    """Jumps in order; those that only help across a long gap observe nothing."""

    times: Float[Array, " n"]
    last_jump: Int[Array, " n"]  # the jump that ends at each time
    begins: Float[Array, " jumps"]  # when jumps start
    gaps: Float[Array, " jumps"]
    observations: Float[Array, "jumps *k"]
    observed: Bool[Array, " jumps"]


def schedule(times: ArrayLike, observations: ArrayLike, start: float, horizon: float) -> Schedule:
    """Jumps no longer than `horizon` from `start` through all `times`."""
    instants = _checked_times(times, start)
    table = np.asarray(real_numbers("observations", observations), dtype=float)
    if np.any(np.isinf(table)):
        raise ValueError("`observations` must be finite, or NaN where nothing was observed.")
    if table.ndim == 0 or len(table) != len(instants):
        raise ValueError(
            f"`observations` must have one entry for each of the {len(instants)} times; got shape "
            f"{table.shape}."
        )
    gaps = np.diff(instants, prepend=start)
    # A gap asked for as the horizon itself must pass after a subtraction has rounded it upwards.
    counts = np.maximum(1, np.ceil(gaps / horizon - 1e-9)).astype(int)
    last_jump = np.cumsum(counts) - 1
    missing = np.isnan(table.reshape(len(table), -1)).all(axis=1)
    observed = np.zeros(counts.sum(), dtype=bool)
    observed[last_jump] = ~missing
    # Where nothing is observed any number will do; NaN would stop under `jax_debug_nans`.
    shown = np.where(missing.reshape(-1, *[1] * (table.ndim - 1)), 0.0, table)
    jumps = np.repeat(gaps / counts, counts)
    return Schedule(
        times=jnp.asarray(instants),
        last_jump=jnp.asarray(last_jump),
        begins=jnp.asarray(start + np.cumsum(np.append(0.0, jumps[:-1]))),
        gaps=jnp.asarray(jumps),
        observations=jnp.asarray(np.repeat(shown, counts, axis=0)),
        observed=jnp.asarray(observed),
    )


def _checked_times(times: ArrayLike, start: float) -> Float[np.ndarray, " n"]:
    instants = np.asarray(real_numbers("times", times), dtype=float)
    if instants.ndim != 1 or len(instants) == 0:
        raise ValueError(f"`times` must be a list of one time or more; got shape {instants.shape}.")
    if not np.all(np.isfinite(instants)):
        raise ValueError("`times` must be finite.")
    steps = np.diff(instants)
    if np.any(steps <= 0):
        index = int(np.argmax(steps <= 0))
        raise ValueError(
            f"`times` must increase; got {instants[index]:g} then {instants[index + 1]:g} at index "
            f"{index + 1}. Combine observations of one time in one row."
        )
    if instants[0] < start:
        raise ValueError(
            f"The first time, {instants[0]:g}, lies before the start, {start:g}, at which the "
            "initial law holds; pass `start`."
        )
    return instants
