r"""Laws at future times, given a filter or the present state.

After the last observation no weight changes any more: the law at a later time is the mixture of the
transition laws from all particles. Beyond the horizon of the density, particles first jump exactly
in steps of half the horizon. The mixture is that of the last jump, between half and the whole of
the horizon long, so that its density is smooth.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray

from ..distribution.abstract_distribution import AbstractDistribution
from ..sde.argument_checks import checked_key, checked_point, real_numbers
from ..sde.domains import require_inside
from ..sde.parameters import Params
from ..transition.transition_density import AbstractTransitionDensity, with_axis
from ..uses.green import propagate
from ..uses.observed import in_unit
from ..uses.simulation import simulate
from ..uses.underlying_sde import (
    began_at,
    check_start_times,
    conditioning_at,
    require_reusable,
    scalars,
)
from ..uses.weights import systematic
from .filtering import Filtered
from .laws_over_time import AbstractLawsOverTime, checked_levels

# Draws of each law, for moments and quantiles; particles from a known state beyond the horizon.
_DRAWS, _PARTICLES = 8192, 4096


class Forecast(AbstractLawsOverTime):
    """Laws of the state at future times. Moments and quantiles are those of draws.

    `outside` counts the starts of the last jump.
    """

    density: AbstractTransitionDensity
    params: dict[str, Any]
    starts: Float[Array, "nodes particles d"]  # states from which a last jump begins
    nodes: Int[np.ndarray, " n"] = eqx.field(converter=np.asarray)  # index in `starts`
    begins: Float[np.ndarray, " n"] = eqx.field(converter=np.asarray)  # time of the last jump

    def at(self, index: int) -> AbstractDistribution:
        """Return the law at one time, with its density, moments, quantiles and marginals.

        **Arguments:**

        - `index`: the index of the time; negative ones count from the end.
        """
        self._check_index(index)
        begin, starts = float(self.begins[index]), self.starts[self.nodes[index]]
        gap = float(self.times[index]) - begin
        conditioning = conditioning_at(self.density, self.params, begin)
        if len(starts) == 1:
            return self.density.at(gap, starts[0], **conditioning)
        return propagate(self.density, starts, gap, **conditioning)


def forecast(
    key: PRNGKeyArray | int,
    density: AbstractTransitionDensity,
    filtered: Filtered | Float[ArrayLike, " d"],
    times: Float[ArrayLike, " n"],
    *,
    start: float | None = None,
    params: Params | None = None,
    unit: str | None = None,
    origin: Any = None,
    quantiles: Sequence[float] = (0.05, 0.25, 0.5, 0.75, 0.95),
) -> Forecast:
    """Return the laws of the state at future times.

    **Arguments:**

    - `key`: a random key, or a seed.
    - `density`: a transition density, learned or exact.
    - `filtered`: the result of `diracflow.filter` with `history=True`, or the known present state.
    - `times`: increasing times after the last one of the filter. Times beyond the density's horizon
        are reached by exact jumps.
    - `start`: the time of a known state; by default the start time of the density.
    - `params`: parameters of the SDE, if the density has any.
    - `unit`, `origin`: the unit of the SDE's time and the date of its time zero, if `times` are
        dates: `unit="day", origin=frame.index[0]` after a filter of `frame`.
    - `quantiles`: levels of the quantiles computed for each component.

    **Returns:** a `Forecast` with `.means`, `.variances` and `.quantiles` at each time, of at least
    8192 draws. `.at(index)` is the law at one time, a `diracflow.AbstractDistribution`; `.plot()`
    draws the fan.

    >>> import diracflow as df
    >>> exact = df.models.ornstein_uhlenbeck(2).exact
    >>> found = df.forecast(0, exact, [0.5, -0.5], [0.5, 1.0, 4.0])
    >>> found.quantiles.shape, found.at(-1).cov().shape
    ((3, 5, 2), (2, 2))
    """
    key, params = checked_key(key), scalars(density, params)
    levels = checked_levels(quantiles)
    jump_key, draw_key, pick_key = jr.split(key, 3)
    began, present = _present(pick_key, density, filtered, start)
    instants = _future(*in_unit(times, None, unit, origin)[:1], began)
    require_reusable(density, params, began, float(instants[-1]) - began, present[:3])
    starts, nodes, begins = _last_starts(jump_key, density, present, instants, began, params)
    gaps = instants - begins
    check_start_times(density, jnp.asarray(begins), "forecast")
    table = jnp.asarray(nodes), jnp.asarray(gaps), jnp.asarray(begins)
    restricted = density._restricted(jnp.asarray(np.max(gaps)))
    found = _summaries(restricted, draw_key, starts, table, levels, params)
    asked: dict[str, Any] = {"times": jnp.asarray(instants), "levels": levels, "params": params}
    return Forecast(density=density, starts=starts, nodes=nodes, begins=begins, **asked, **found)


def _present(
    key: PRNGKeyArray, density: AbstractTransitionDensity, filtered: Any, start: float | None
) -> tuple[float, Float[Array, "particles d"]]:
    """Return the present time, and states of equal weight at that time."""
    if isinstance(filtered, Filtered):
        if start is not None:
            raise ValueError("`start` is the time of a known state; a filter has its own times.")
        law = filtered.at(-1)
        picked = systematic(jr.uniform(key), law.weights, len(law.x))
        return float(filtered.times[-1]), law.x[picked]
    given = with_axis(density.dim, filtered)
    state = jnp.asarray(checked_point("filtered", given, density.dim, finite=True))
    if state.ndim > 1:
        raise ValueError(
            "`filtered` must be the result of `diracflow.filter` or one state; got shape "
            f"{state.shape}. For draws of a law use `diracflow.propagate`."
        )
    require_inside(density.domain, state)
    return began_at(density, start, "start"), state[None]


def _future(times: Any, began: float) -> Float[np.ndarray, " n"]:
    """Return the times, after checking that they increase from `began` on."""
    instants = np.atleast_1d(np.asarray(real_numbers("times", times), dtype=float))
    if instants.ndim != 1 or len(instants) == 0 or not np.all(np.isfinite(instants)):
        raise ValueError(f"`times` must be a list of one finite time or more; got {times!r}.")
    if instants[0] <= began or np.any(np.diff(instants) <= 0):
        raise ValueError(
            f"`times` must increase, and lie after the present, t={began:g}; got "
            f"{instants.tolist()}. Laws at earlier times are those of the filter."
        )
    return instants


def _last_starts(
    key: PRNGKeyArray,
    density: AbstractTransitionDensity,
    present: Float[Array, "particles d"],
    instants: Float[np.ndarray, " n"],
    began: float,
    params: Params,
) -> tuple[Float[Array, "nodes particles d"], Int[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Return states at nodes in time; for each time the index of its node, and the node's time."""
    horizon, gaps = density.horizon, instants - began
    if gaps[-1] <= horizon * (1 + 1e-9):
        return present[None], np.zeros(len(gaps), int), np.full(len(gaps), began)
    half = horizon / 2
    nodes = np.maximum(0, np.ceil((gaps - horizon) / half - 1e-9)).astype(int)
    count = _PARTICLES if len(present) == 1 else len(present)
    present = jnp.broadcast_to(present, (count, density.dim))
    jumps = began + half * np.arange(1, nodes[-1] + 1)
    paths = simulate(key, density, jumps, present, count, params=params or None, start=began)
    starts = jnp.concatenate([present[None], jnp.moveaxis(paths.states, 1, 0)])
    return starts, nodes, began + half * nodes


@eqx.filter_jit
def _summaries(
    density: AbstractTransitionDensity,
    key: PRNGKeyArray,
    starts: Float[Array, "nodes particles d"],
    table: tuple[Array, Array, Array],
    levels: Float[Array, " q"],
    params: dict[str, Any],
) -> dict[str, Any]:
    """Return means, variances, quantiles and the fraction outside, at each time."""
    each = -(-_DRAWS // starts.shape[1])

    def at(row: tuple[Array, Array, Array]) -> dict[str, Any]:
        node, gap, begin = row
        x0, conditioning = starts[node], conditioning_at(density, params, begin)
        # The same noise at all times, so that fans are smooth.
        x = density.sample(key, gap, x0, (each,), **conditioning).reshape(-1, density.dim)
        return {
            "means": jnp.mean(x, axis=0),
            "variances": jnp.var(x, axis=0),
            "quantiles": jnp.quantile(x, levels, axis=0),
            "outside": jnp.mean(density.outside(x0, **conditioning)),
        }

    return jax.lax.map(at, table)
