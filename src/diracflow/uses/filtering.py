r"""Particle filter for noisy, partial observations at arbitrary times.

Particles jump from one observation to the next by exact samples of the transition density, however
far apart the observations are; no path is simulated in between. At an observation $y$ each
particle's weight is multiplied by $p(y | x)$. When the effective share of the particles falls below
one half they are drawn anew in proportion to their weights.

The mean of the weights at each time estimates $p(y_k | y_1, \dots, y_{k-1})$; the product is an
unbiased estimate of the evidence of the density's own process.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from ..sde.argument_checks import checked_count, checked_flag, checked_key, real_numbers
from ..sde.domains import require_inside
from ..sde.laws import AbstractLaw
from ..sde.parameters import Params
from ..transition.transition_density import AbstractTransitionDensity
from .particles import Observe, initial_particles, moved, refreshed, reweighted, summary
from .schedule import Schedule, schedule
from .underlying_sde import began_at, check_start_times, member_of, require_homogeneous, scalars
from .weights import WeightsVanished, effective_share


class Filtered(eqx.Module):
    """Laws of the state given the observations up to each time."""

    times: Float[Array, " n"]
    log_evidences: Float[Array, " n"]  # of each observation given those before; zero where missing
    means: Float[Array, "n d"]
    variances: Float[Array, "n d"]
    levels: Float[Array, " q"]
    quantiles: Float[Array, "n q d"]
    effective_shares: Float[Array, " n"]  # before particles are drawn anew
    outside: Float[Array, " n"]  # share of particles from which the density was not made to jump
    particles: Float[Array, "n particles d"] | None
    weights: Float[Array, "n particles"] | None

    @property
    def log_evidence(self) -> float:
        """Logarithm of the estimated density of all observations."""
        return float(jnp.sum(self.log_evidences))


def filter(  # the name that the field uses
    key: PRNGKeyArray,
    density: AbstractTransitionDensity,
    times: Float[ArrayLike, " n"],
    observations: Float[ArrayLike, "n *k"],
    observe: Observe,
    particles: int = 1000,
    *,
    initial: AbstractLaw | Float[ArrayLike, "m d"] | None = None,
    start: float | None = None,
    quantiles: Sequence[float] = (0.05, 0.5, 0.95),
    history: bool = False,
    params: Params | None = None,
) -> Filtered:
    r"""Laws of a hidden diffusion given observations, by sequential Monte Carlo.

    **Arguments:**

    - `key`: of `jax.random.key`.
    - `density`: a transition density, learned or exact. The coefficients of its SDE must not depend
        on time, unless the density depends on the time of the start.
    - `times`: increasing times of the observations. A gap beyond the density's horizon is crossed
        in equal jumps within it.
    - `observations`: one for each time. All NaN: missing, the law is only carried on.
    - `observe`: the function $(x, y) \mapsto \log p(y | x)$ of one state and one observation.
    - `particles`: how many. Errors decay as their number to the power $-1/2$.
    - `initial`: law of the state at `start`: a law, draws of it (one a row), or one known state of
        shape `(d,)`. By default the density's own law of starts.
    - `start`: time at which `initial` holds, not after the first observation. By default the
        density's start time, zero for exact densities; none where the density depends on it.
    - `quantiles`: levels at which each component's quantiles are kept.
    - `history`: keep all particles and weights.
    - `params`: parameters of the SDE, if the density has any.

    **Returns:**

    `.means`, `.variances`, `.quantiles`, `.effective_shares` at each time, `.log_evidence`,
    `.outside`, the share of particles from which the density was not made to jump, and with
    `history` also `.particles` and `.weights`.

    >>> import jax
    >>> import diracflow as df
    >>> model = df.models.ornstein_uhlenbeck(1)
    >>> observe = lambda x, y: -0.5 * (y - x[0]) ** 2 / 0.1
    >>> found = df.filter(
    ...     *(jax.random.key(0), model.exact, [0.5, 1.5], [0.3, -0.2], observe),
    ...     initial=model.starts,
    ... )
    >>> found.means.shape
    (2, 1)
    """
    key, given = checked_key(key), scalars(density, params)
    began = began_at(density, start, "start")
    plan = schedule(times, observations, began, density.horizon)
    check_start_times(density, plan.begins, "filter")
    particles, history = checked_count("particles", particles), checked_flag("history", history)
    levels = _levels(quantiles)
    start_key, walk_key = jr.split(key)
    x = initial_particles(start_key, density, initial, particles)
    require_inside(density.domain, x)
    _require_log_density(observe, x[0], plan.observations[0])
    _require_same_law(density, plan, x, given)
    found = _walk(density, observe, walk_key, x, plan, levels, history, given)
    kept = jax.tree.map(lambda a: a[plan.last_jump], found)
    _require_evidence(kept["log_evidences"], plan)
    return Filtered(times=plan.times, levels=levels, **kept)


@eqx.filter_jit
def _walk(
    density: AbstractTransitionDensity,
    observe: Observe,
    key: PRNGKeyArray,
    x: Float[Array, "particles d"],
    plan: Schedule,
    levels: Float[Array, " q"],
    history: bool,
    params: dict[str, Any],
) -> dict[str, Any]:
    def step(state: tuple, jump: tuple) -> tuple[tuple, dict[str, Any]]:
        x, weights = state
        key, begin, gap, y, observed = jump
        move_key, resample_key = jr.split(key)
        begin = begin if density.start_time is None else None
        given: dict[str, Any] = {"params": params, "start_time": begin}
        outside = jnp.mean(density.outside(x, **given))
        x = moved(density, move_key, x, gap, given)
        weights, log_evidence = reweighted(observe, x, weights, y, observed)
        share = effective_share(weights)
        kept = summary(x, weights, levels) | {
            "log_evidences": log_evidence,
            "effective_shares": share,
            "outside": outside,
            "particles": x if history else None,
            "weights": weights if history else None,
        }
        return refreshed(resample_key, x, weights, share), kept

    first = x, jnp.full(len(x), 1 / len(x), x.dtype)
    keys = jr.split(key, len(plan.gaps))
    jumps = (keys, plan.begins, plan.gaps, plan.observations, plan.observed)
    return jax.lax.scan(step, first, jumps)[1]


def _levels(quantiles: Sequence[float]) -> Float[Array, " q"]:
    levels = np.atleast_1d(np.asarray(real_numbers("quantiles", quantiles)))
    if levels.ndim != 1 or not np.all((levels > 0) & (levels < 1)):
        raise ValueError(f"`quantiles` must be levels between 0 and 1; got {quantiles}.")
    return jnp.asarray(levels)


def _require_log_density(observe: Observe, x: Array, y: Array) -> None:
    try:
        value = eqx.filter_eval_shape(lambda x, y: jnp.asarray(observe(x, y)), x, y)
    except Exception as error:
        raise ValueError(
            f"`observe(x, y)` could not be traced for a state of shape {x.shape} and an "
            f"observation of shape {y.shape}: {type(error).__name__}: {error}"
        ) from error
    if value.shape != ():
        raise ValueError(
            "`observe(x, y)` must return one number, the logarithm of p(y | x); got shape "
            f"{value.shape}. Sum over the components of the observation."
        )
    if not jnp.issubdtype(value.dtype, jnp.floating) and value.dtype.kind not in "iu":
        raise ValueError(f"`observe(x, y)` must return a real number; got dtype {value.dtype}.")


def _require_same_law(
    density: AbstractTransitionDensity, plan: Schedule, x: Array, params: Params
) -> None:
    sde, began = getattr(density, "sde", None), density.start_time
    if sde is not None and began is not None:
        span = float(jnp.sum(plan.gaps))
        require_homogeneous(member_of(sde, params), began, span, x[:3])


def _require_evidence(log_evidences: Float[Array, " n"], plan: Schedule) -> None:
    bad = ~np.isfinite(log_evidences)
    if not bad.any():
        return
    index = int(np.argmax(bad))
    where = f"observation {index} at t={float(plan.times[index]):g}"
    if np.isneginf(log_evidences[index]):
        raise WeightsVanished(
            f"All particles have weight zero at {where}. Take more `particles`, an `initial` law "
            "that reaches it, or an `observe` with heavier tails."
        )
    raise WeightsVanished(
        f"`observe` returned {float(log_evidences[index])} at {where}. Let it return finite "
        "numbers or -inf; an observation of NaN alone is skipped."
    )
