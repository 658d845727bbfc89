"""Bridges between all consecutive states of given paths."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..sde.chart import Chart
from ..sde.parameters import Params
from ..sde.sde import SDE
from ..transition.transition_density import AbstractTransitionDensity
from .bridges import AbstractProposal, guided, simulate_paths
from .simulation import Paths
from .weights import WeightsVanished

# Weighted paths simulated at once.
_TOGETHER = 512


def connected(
    key: PRNGKeyArray,
    density: AbstractTransitionDensity,
    chain: Paths,
    steps: int,
    proposals: int,
    sde: SDE | None,
    params: Params,
) -> Paths:
    """Fill the gaps of paths, none longer than the horizon, with bridges of `steps` each.

    Each is selected from weighted `proposals`.
    """
    times, states = np.asarray(chain.times), chain.states
    if len(times) < 2:
        raise ValueError("Bridges need states at two times or more, the start included; got one.")
    gaps, later = np.diff(times), density.start_time is None
    began = float(times[0]) if later else None
    ends = states[0, 0], states[0, 1]
    pattern, chart, _, zero = guided(
        density, ends, float(gaps[0]), sde, None, params, start_time=began
    )
    # The bridge of a density with one start time begins at that time.
    arrivals = times[1:] if later else zero + gaps
    remaining = (1 - np.arange(steps + 1) / steps) ** 2
    x0, x1 = (part.reshape(-1, part.shape[-1]) for part in (states[:, :-1], states[:, 1:]))
    of_gap = [jnp.asarray(np.tile(row, len(states)), x0.dtype) for row in (gaps, arrivals)]
    pieces = (jr.split(key, len(x0)), x0, x1, *of_gap)
    inner, good = _pieces(pattern, chart, jnp.asarray(remaining, x0.dtype), pieces, proposals)
    lost = int(jnp.sum(~good))
    if lost:
        raise WeightsVanished(
            f"{lost} of {len(good)} bridges have no path of positive weight, or paths on which the "
            "coefficients are not defined. Increase `steps` or `proposals`."
        )
    inner = jnp.concatenate([x0[:, None], inner], axis=1).reshape(len(states), -1, x0.shape[-1])
    instants = times[:-1, None] + gaps[:, None] * (1 - remaining[:-1])
    every = jnp.concatenate([inner, states[:, -1:]], axis=1)
    return Paths(jnp.asarray(np.append(instants.ravel(), times[-1])), every)


@eqx.filter_jit
def _pieces(
    pattern: AbstractProposal,
    chart: Chart,
    remaining: Float[Array, " steps+1"],
    pieces: tuple[Array, ...],
    proposals: int,
) -> tuple[Float[Array, "pieces steps-1 d"], Bool[Array, " pieces"]]:
    """Return the inner states of one bridge for each piece, and `True` where there is one."""

    def piece(piece: tuple[Array, ...]) -> tuple[Array, Array]:
        key, x0, x1, gap, arrival = piece
        draw_key, pick_key = jr.split(key)
        proposal = eqx.tree_at(lambda p: (p.arrival, p.end), pattern, (arrival, chart.start(x1)))
        start = chart.start(x0)
        inner, log_weights = simulate_paths(proposal, draw_key, start, gap * remaining, proposals)
        good = jnp.any(log_weights > -jnp.inf) & ~jnp.any(jnp.isnan(log_weights))
        picked = inner[:, jr.categorical(pick_key, jnp.where(good, log_weights, 0.0))]
        return jax.vmap(chart.from_real)(picked), good

    return jax.lax.map(piece, pieces, batch_size=max(1, _TOGETHER // proposals))
