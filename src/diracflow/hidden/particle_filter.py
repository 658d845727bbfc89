r"""The jumps of a particle filter, as one pure function of its arrays.

`filter_task` checks what the user gave, once. `run` can be compiled, mapped over parameters, and
traced in other programs.
"""

import warnings
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray

from ..sde.argument_checks import checked_count, real_numbers
from ..sde.domains import require_inside
from ..sde.laws import AbstractLaw
from ..sde.parameters import Params
from ..transition.transition_density import AbstractTransitionDensity
from ..uses.observed import in_unit
from ..uses.simulation import jumps_to
from ..uses.underlying_sde import began_at, require_reusable, scalars
from ..uses.weights import effective_fraction, systematic
from .guided_jumps import Hidden, Jump, Landed, Observe, bootstrap_jump, first_outlook, guided_jump
from .laws_over_time import laws

_PROPOSALS = ("auto", "bootstrap", "guided")
# Particles are resampled if the effective sample size is below this fraction of their number.
_RESAMPLE_BELOW = 0.5


class Schedule(eqx.Module):
    """Jumps in order. Within a long gap, all jumps but the last end without an observation."""

    times: Float[Array, " n"]
    last_jump: Int[Array, " n"]  # index of the jump that ends at each time
    begins: Float[Array, " jumps"]  # times at which jumps start
    gaps: Float[Array, " jumps"]
    observations: Float[Array, "jumps *k"]
    observed: Bool[Array, " jumps"]


class FilterTask(NamedTuple):
    """A checked process, its jumps and the first particles of a filter."""

    hidden: Hidden
    plan: Schedule
    x: Float[Array, "particles d"]


@eqx.filter_jit
def run(
    task: FilterTask,
    key: PRNGKeyArray,
    levels: Float[Array, " q"] | None,
    proposal: str,
    history: bool,
) -> dict[str, Any]:
    """Return the log-evidence after each jump, the laws if there are `levels` of quantiles.

    With `history`, return all particles. `parents` are those after one jump from which those of
    the next start.
    """
    (hidden, plan, x), count = task, len(task.x)
    level = -jnp.log(jnp.full(count, float(count), x.dtype))

    def step(state: tuple, inputs: tuple) -> tuple[tuple, dict[str, Any]]:
        x, log_weights, outlook = state
        (move_key, resample_key), jump, observed = inputs
        outside = jnp.mean(hidden.density.outside(x, **hidden.conditioning(jump.begin)))
        landed, guided = _landed(hidden, move_key, state, jump, observed, proposal)
        seen = observed & (jump.gap > 0)
        later = outlook.after(log_weights, guided, landed)
        outlook = jax.tree.map(lambda new, old: jnp.where(seen, new, old), later, outlook)
        x, log_weights = landed.x, log_weights + jnp.where(observed, landed.log_weights, 0.0)
        log_evidence = jax.nn.logsumexp(log_weights)
        # If no particle has weight, the evidence is zero whatever happens afterwards.
        lost = log_evidence == -jnp.inf
        log_weights = jnp.where(lost, level, log_weights - log_evidence)
        weights = jnp.exp(log_weights)
        fraction = effective_fraction(weights)
        kept = {
            "log_evidences": jnp.where(observed, log_evidence, 0.0),
            "effective_shares": fraction,
            "outside": outside,
            "guided": guided,
            **({} if levels is None else laws(x, weights, levels)),
        }
        u = jr.uniform(resample_key)
        picked = lambda: (systematic(u, weights, count).astype(jnp.int32), level)
        as_before = lambda: (jnp.arange(count, dtype=jnp.int32), log_weights)
        parents, log_weights = jax.lax.cond(fraction < _RESAMPLE_BELOW, picked, as_before)
        if history:
            kept |= {"particles": x, "weights": weights, "parents": parents}
        return (x[parents], log_weights, outlook), kept

    keys = jnp.moveaxis(jr.split(key, (len(plan.gaps), 2)), 1, 0)
    jumps = Jump(plan.begins, plan.gaps, plan.observations)
    first = x, level, first_outlook(x.dtype)
    return jax.lax.scan(step, first, ((keys[0], keys[1]), jumps, plan.observed))[1]


def _landed(
    hidden: Hidden, key: PRNGKeyArray, state: tuple, jump: Jump, observed: Array, proposal: str
) -> tuple[Landed, Bool[Array, ""]]:
    """Return the particles after a jump, and `True` if it was guided."""
    x, log_weights, outlook = state
    free = lambda: bootstrap_jump(hidden, key, x, jump)
    if proposal == "bootstrap":
        return free(), jnp.asarray(False)
    chosen = observed & (jump.gap > 0)
    chosen &= outlook.favours_guidance() if proposal == "auto" else True
    guided = lambda: guided_jump(hidden, key, x, log_weights, jump)
    return jax.lax.cond(chosen, guided, free), chosen


def filter_task(
    key: PRNGKeyArray,
    density: AbstractTransitionDensity,
    data: tuple[ArrayLike, ArrayLike, str | None],
    observe: Observe,
    particles: int,
    initial: Any,
    start: float | None,
    params: Params | None,
) -> FilterTask:
    """Return the task of a filter; `data` are times, observations and the unit of dates.

    The other arguments are those of `diracflow.filter`. Warn if all observations are missing.
    """
    hidden = Hidden(density, observe, scalars(density, params))
    plan = schedule(density, *in_unit(*data), began_at(density, start, "start"))
    first, count = initial_law(density, initial), checked_count("particles", particles)
    if isinstance(first, AbstractLaw):
        x = first.sample(key, (count,))
    else:
        x = first if len(first) == count else jr.choice(key, first, (count,))
    check_model(density, observe, plan, x, hidden.params)
    if known(plan.observed) and not np.any(plan.observed):
        warnings.warn(
            "All observations are missing: the laws are those of the process, without any data.",
            stacklevel=3,
        )
    return FilterTask(hidden, plan, x)


def checked_proposal(task: FilterTask, proposal: str) -> str:
    """Return the kind of jumps; `auto` becomes `bootstrap` where guidance is not possible."""
    if proposal not in _PROPOSALS:
        names = ", ".join(f'"{name}"' for name in _PROPOSALS)
        raise ValueError(f"`proposal` must be one of {names}; got {proposal!r}.")
    hidden, y = task.hidden, task.plan.observations[0]
    try:
        eqx.filter_eval_shape(lambda x: jax.hessian(hidden.log_likelihood)(x, y), task.x[0])
    except Exception as error:
        if proposal == "guided":
            raise ValueError(
                "Guided jumps need two derivatives of `observe` in the state, which failed: "
                f'{type(error).__name__}: {error}. Use `proposal="bootstrap"`.'
            ) from error
        return "bootstrap"
    # The density of a jump composed of subintervals costs far more than a draw.
    return "bootstrap" if proposal == "auto" and hidden.density.averages else proposal


def schedule(
    density: AbstractTransitionDensity, times: ArrayLike, observations: ArrayLike, start: float
) -> Schedule:
    """Return jumps within the density's horizon, from `start` through all `times`."""
    jumps = jumps_to(density, times, start, "filter")
    table = np.asarray(real_numbers("observations", observations), dtype=float)
    if np.any(np.isinf(table)):
        raise ValueError("`observations` must be finite, or NaN if missing.")
    if table.ndim == 0 or len(table) != len(jumps.times):
        raise ValueError(
            f"`observations` must have one entry for each of the {len(jumps.times)} times; got "
            f"shape {table.shape}."
        )
    missing = np.isnan(table.reshape(len(table), -1)).all(axis=1)
    observed = np.zeros(len(jumps.gaps), dtype=bool)
    observed[jumps.last] = ~missing
    # The value of a missing observation is not used, but NaN would stop under `jax_debug_nans`.
    filled = np.where(missing.reshape(-1, *[1] * (table.ndim - 1)), 0.0, table)
    of_jumps = np.repeat(filled, np.diff(jumps.last, prepend=-1), axis=0)
    return Schedule(*map(jnp.asarray, (*jumps, of_jumps, observed)))


def initial_law(
    density: AbstractTransitionDensity, initial: Any
) -> AbstractLaw | Float[Array, "m d"]:
    """Return the law of the first state, or draws of it, after checking them."""
    law = getattr(density, "starts", None) if initial is None else initial
    if law is None:
        raise ValueError(
            f"A {type(density).__name__} has no law of starts; pass `initial`: a law, draws of it "
            "or a known state."
        )
    if isinstance(law, AbstractLaw):
        return law.expand(density.dim)
    draws = jnp.atleast_2d(jnp.asarray(real_numbers("initial", law)))
    if draws.ndim != 2 or draws.shape[1] != density.dim or len(draws) == 0:
        raise ValueError(
            f"`initial` must be a law, draws of shape (n, {density.dim}) or one state of shape "
            f"({density.dim},); got shape {np.shape(law)}."
        )
    if known(draws) and not bool(jnp.all(jnp.isfinite(draws))):
        raise ValueError("`initial` must be finite.")
    return draws


def check_model(
    density: AbstractTransitionDensity, observe: Observe, plan: Schedule, x: Array, params: Params
) -> None:
    """Raise if the first jumps or observations are not possible."""
    if known(x):
        require_inside(density.domain, x)
    state, y = x[0], plan.observations[0]
    try:
        value = eqx.filter_eval_shape(lambda x, y: jnp.asarray(observe(x, y)), state, y)
    except Exception as error:
        raise ValueError(
            f"`observe(x, y)` could not be traced for a state of shape {state.shape} and an "
            f"observation of shape {y.shape}: {type(error).__name__}: {error}"
        ) from error
    if value.shape != ():
        raise ValueError(
            "`observe(x, y)` must return one number, the logarithm of p(y | x); got shape "
            f"{value.shape}. Sum over the components of the observation."
        )
    if not jnp.issubdtype(value.dtype, jnp.floating) and value.dtype.kind not in "iu":
        raise ValueError(f"`observe(x, y)` must return a real number; got dtype {value.dtype}.")
    began = density.start_time
    if began is not None and known(x, params, plan):
        require_reusable(density, params, began, float(jnp.sum(plan.gaps)), x[:3])


def known(*arrays: Any) -> bool:
    """Return `True` if no number among `arrays` is being traced."""
    return not any(isinstance(a, jax.core.Tracer) for a in jax.tree.leaves(arrays))
