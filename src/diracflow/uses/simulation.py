"""Paths at given times, by exact jumps of the transition density.

No path is simulated between the times, so that there is no discretisation error.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray

from ..distribution.lazy_plot import Drawn
from ..sde.argument_checks import checked_count, checked_key, checked_point, real_numbers
from ..sde.domains import require_inside
from ..sde.laws import AbstractLaw
from ..sde.parameters import Params
from ..transition.transition_density import AbstractTransitionDensity, with_axis
from .extras import extra
from .observed import in_unit
from .underlying_sde import (
    began_at,
    check_start_times,
    conditioning_at,
    positive_time,
    require_reusable,
    scalars,
)


class Paths(Drawn, eqx.Module):
    """States of independent paths at common times; `plot` draws the median and the 90 % band."""

    times: Float[Array, " n"]
    states: Float[Array, "paths n d"]  # without the last axis if the start was a scalar

    def to_xarray(self) -> Any:
        """Return an `xarray.DataArray` with the dimensions `path`, `time` and `component`."""
        names = ["path", "time", "component"][: self.states.ndim]
        coordinates = {"path": np.arange(len(self.states)), "time": np.asarray(self.times)}
        if len(names) > 2:
            coordinates["component"] = np.arange(self.states.shape[2])
        return extra("xarray").DataArray(np.asarray(self.states), coordinates, names, name="state")


def simulate(
    key: PRNGKeyArray | int,
    density: AbstractTransitionDensity,
    times: Float[ArrayLike, " n"],
    x0: AbstractLaw | Float[ArrayLike, " d"],
    paths: int = 1,
    *,
    params: Params | None = None,
    start: float | None = None,
    unit: str | None = None,
) -> Paths:
    """Draw paths at given times from a transition density.

    **Arguments:**

    - `key`: a random key, or a seed.
    - `density`: a transition density, learned or exact. The coefficients of its SDE must not depend
        on time, unless the density depends on the start time.
    - `times`: increasing times. Gaps longer than the density's horizon are crossed in equal jumps.
    - `x0`: the state at `start`: one state, a scalar in one dimension, or a law.
    - `paths`: number of paths.
    - `params`: parameters of the SDE, if the density has any.
    - `unit`: the unit of the SDE's time, if `times` are dates, as for `diracflow.log_likelihood`.
        Dates are counted from the first, at which the paths are at `x0`.
    - `start`: the time of `x0`, not after the first time. The default is the start time of the
        density; it is required if the density depends on the start time.

    **Returns:** `Paths` with `.times`, `.states` of shape `(paths, n, d)` and `.to_xarray()`.

    >>> import diracflow as df
    >>> exact = df.models.ornstein_uhlenbeck(2).exact
    >>> df.simulate(0, exact, [0.5, 1.0, 4.0], [0.0, 1.0], paths=10).states.shape
    (10, 3, 2)
    """
    key, params = checked_key(key), scalars(density, params)
    times, _ = in_unit(times, None, unit)
    count = checked_count("paths", paths)
    began = began_at(density, start, "start")
    jumps = jumps_to(density, times, began, "simulate")
    scalar = density.dim == 1 and not isinstance(x0, AbstractLaw) and np.ndim(x0) == 0
    start_key, jump_key = jr.split(key)
    first = _first_states(start_key, density, x0, count)
    require_reusable(density, params, began, float(jumps.times[-1] - began), first[:3])
    keys = jr.split(jump_key, len(jumps.gaps))
    table = jnp.asarray(jumps.gaps), jnp.asarray(jumps.begins), keys
    longest = jnp.asarray(max(float(np.max(jumps.gaps)), np.finfo(np.float32).tiny))
    states = _jump(density._restricted(longest), first, table, params)
    states = jnp.moveaxis(states[jumps.last], 0, 1)
    return Paths(jnp.asarray(jumps.times), states[..., 0] if scalar else states)


class Jumps(NamedTuple):
    """Jumps through increasing times; those within a long gap are equal."""

    times: Float[np.ndarray, " n"]
    last: Int[np.ndarray, " n"]  # index of the jump that ends at each time
    begins: Float[np.ndarray, " jumps"]  # times at which jumps start
    gaps: Float[np.ndarray, " jumps"]


def jumps_to(
    density: AbstractTransitionDensity, times: ArrayLike, start: float, name: str
) -> Jumps:
    """Return jumps within the density's horizon; `name` is what errors about start times name."""
    instants = np.asarray(real_numbers("times", times), dtype=float)
    if instants.ndim != 1 or len(instants) == 0:
        raise ValueError(f"`times` must be a list of one time or more; got shape {instants.shape}.")
    if not np.all(np.isfinite(instants)):
        raise ValueError("`times` must be finite.")
    late = np.diff(instants) <= 0
    if np.any(late):
        raise ValueError(
            f"`times` must increase; got {instants[:-1][late][0]:g} then {instants[1:][late][0]:g} "
            f"at index {int(np.argmax(late)) + 1}. Combine observations of one time in one row."
        )
    if instants[0] < start:
        raise ValueError(
            f"The first time, {instants[0]:g}, lies before the start, {start:g}, at which the "
            "initial law holds; pass `start`."
        )
    gaps = np.diff(instants, prepend=start)
    # A gap equal to the horizon must pass although the subtraction may have rounded it upwards.
    counts = np.maximum(1, np.ceil(gaps / density.horizon - 1e-9)).astype(int)
    lengths = np.repeat(gaps / counts, counts)
    begins = start + np.cumsum(np.append(0.0, lengths[:-1]))
    check_start_times(density, jnp.asarray(begins), name)
    return Jumps(instants, np.cumsum(counts) - 1, begins, lengths)


def _first_states(
    key: PRNGKeyArray, density: AbstractTransitionDensity, x0: Any, count: int
) -> Float[Array, "paths d"]:
    if isinstance(x0, AbstractLaw):
        first = x0.expand(density.dim).sample(key, (count,))
    else:
        point = checked_point("x0", with_axis(density.dim, x0), density.dim, finite=True)
        if point.ndim > 1 and point.shape != (count, density.dim):
            raise ValueError(
                f"`x0` must be one state, or one for each of the {count} paths; got shape "
                f"{point.shape}."
            )
        first = jnp.broadcast_to(point, (count, density.dim))
    require_inside(density.domain, first)
    return first


@eqx.filter_jit
def _jump(
    density: AbstractTransitionDensity,
    first: Float[Array, "paths d"],
    table: tuple[Array, Array, Array],
    params: dict[str, Array],
) -> Float[Array, "jumps paths d"]:
    def step(x: Array, row: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        gap, begin, key = row
        new = jump(density, key, x, gap, conditioning_at(density, params, begin))
        return new, new

    return jax.lax.scan(step, first, table)[1]


def jump(
    density: AbstractTransitionDensity,
    key: PRNGKeyArray,
    x: Float[Array, "n d"],
    gap: Float[Array, ""],
    conditioning: dict[str, Any],
) -> Float[Array, "n d"]:
    """Draw the states after a gap; if it is zero they are those before."""
    new = density.sample(key, positive_time(density, gap), x, **conditioning)
    return jnp.where(gap > 0, new, x)
