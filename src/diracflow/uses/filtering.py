r"""Particle filter for noisy, partial observations at arbitrary times.

Particles jump from one observation to the next by exact samples of the transition density, whatever
the time between observations; no path is simulated in between. At an observation $y$ the weight of
each particle is multiplied by $p(y | x)$. Particles are resampled when the effective sample size
falls below half of their number.

The mean of the weights at each time estimates $p(y_k | y_1, \dots, y_{k-1})$. The product of these
means is an unbiased estimate of the evidence under the process that the density describes.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypedDict, Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray

from ..distribution.lazy_plot import plotted
from ..distribution.particles import Particles
from ..sde.argument_checks import checked_count, checked_flag, checked_key, real_numbers
from ..sde.domains import require_inside
from ..sde.laws import AbstractLaw
from ..sde.parameters import Params
from ..transition.transition_density import AbstractTransitionDensity
from .observed import in_unit
from .simulation import jumps_to
from .underlying_sde import began_at, check_start_times, member_of, require_homogeneous, scalars
from .weights import WeightsVanished, effective_fraction, systematic, weighted_quantiles

Observe = Callable[[Float[Array, " d"], Array], Float[Array, ""]]
# Particles are resampled if the effective sample size is below this fraction of their number.
_RESAMPLE_BELOW = 0.5


class Filtered(eqx.Module):
    """Laws of the state given the observations up to each time."""

    times: Float[Array, " n"]
    log_evidences: Float[Array, " n"]  # of each observation given the earlier; zero if missing
    means: Float[Array, "n d"]
    variances: Float[Array, "n d"]
    levels: Float[Array, " q"]
    quantiles: Float[Array, "n q d"]
    effective_shares: Float[Array, " n"]  # effective sample size / particles, before resampling
    outside: Float[Array, " n"]  # fraction of particles outside the start law of the density
    particles: Float[Array, "n particles d"] | None
    weights: Float[Array, "n particles"] | None

    @property
    def log_evidence(self) -> float:
        """Logarithm of the estimated density of all observations."""
        return float(jnp.sum(self.log_evidences))

    def at(self, index: int) -> Particles:
        """Return the law of the state at one time, with moments, quantiles and draws.

        Only filters with `history=True` have stored it.

        **Arguments:**

        - `index`: the index of the time; negative ones count from the end.
        """
        if self.particles is None or self.weights is None:
            raise ValueError("Particles were not stored; call `filter` with `history=True`.")
        if not -len(self.times) <= index < len(self.times):
            raise ValueError(f"`index` must be one of {len(self.times)} times; got {index}.")
        return Particles(self.particles[index], self.weights[index])

    def plot(self, ax: Any = None) -> Any:
        """Draw the outermost quantiles and the middle one over time, and return the `Axes`.

        **Arguments:**

        - `ax`: a matplotlib `Axes`; by default that of a new figure.
        """
        return plotted(self, ax)


class FilterOutput(TypedDict, total=False):
    """Keyword arguments of `filter` that choose what is stored at each time."""

    quantiles: Sequence[float]
    history: bool


def filter(  # the standard name, although it shadows a builtin
    key: PRNGKeyArray,
    density: AbstractTransitionDensity,
    times: Float[ArrayLike, " n"],
    observations: Float[ArrayLike, "n *k"],
    observe: Observe,
    particles: int = 1000,
    *,
    initial: AbstractLaw | Float[ArrayLike, "m d"] | None = None,
    start: float | None = None,
    params: Params | None = None,
    unit: str | None = None,
    **output: Unpack[FilterOutput],
) -> Filtered:
    r"""Estimate the laws of a hidden diffusion given observations, by sequential Monte Carlo.

    **Arguments:**

    - `key`: a random key.
    - `density`: a transition density, learned or exact. The coefficients of its SDE must not depend
        on time, unless the density depends on the start time.
    - `times`: increasing times. Gaps longer than the density's horizon are crossed in equal jumps.
    - `observations`: one for each time. An observation of NaN alone is missing.
    - `observe`: the function $(x, y) \mapsto \log p(y | x)$ of one state and one observation.
    - `particles`: number of particles. Errors decay as its power $-1/2$.
    - `initial`: the state at `start`: a law, draws of it (one per row), or one known state of shape
        `(d,)`. The default is the start law of the density.
    - `start`: time at which `initial` holds, not after the first observation. The default is the
        start time of the density; it is required if the density depends on the start time.
    - `params`: parameters of the SDE, if the density has any.
    - `unit`: the unit of the SDE's time, if `times` are dates, as for `diracflow.log_likelihood`.
    - `quantiles`: levels of the quantiles stored for each component; by default 0.05, 0.5 and 0.95.
    - `history`: if `True`, store all particles and weights; by default `False`.

    **Returns:** a `Filtered` with `.means`, `.variances`, `.quantiles`, `.effective_shares` and
    `.outside` at each time, `.log_evidence`, and with `history` also `.particles` and `.weights`.

    >>> import jax
    >>> import diracflow as df
    >>> model = df.models.ornstein_uhlenbeck(1)
    >>> data = [0.5, 1.5], [0.3, -0.2], lambda x, y: -0.5 * (y - x[0]) ** 2 / 0.1
    >>> df.filter(jax.random.key(0), model.exact, *data, initial=model.starts).means.shape
    (2, 1)
    """
    key, params = checked_key(key), scalars(density, params)
    times, observations = in_unit(times, observations, unit)
    plan = _schedule(density, times, observations, began_at(density, start, "start"))
    particles = checked_count("particles", particles)
    start_key, jump_key = jr.split(key)
    x = _initial_particles(start_key, density, initial, particles)
    _check_model(density, observe, plan, x, params)
    return _filtered(density, observe, jump_key, x, plan, params, **output)


class _Schedule(eqx.Module):
    """Jumps in order. Within a long gap, all jumps but the last end without an observation."""

    times: Float[Array, " n"]
    last_jump: Int[Array, " n"]  # index of the jump that ends at each time
    begins: Float[Array, " jumps"]  # times at which jumps start
    gaps: Float[Array, " jumps"]
    observations: Float[Array, "jumps *k"]
    observed: Bool[Array, " jumps"]


def _filtered(
    density: AbstractTransitionDensity,
    observe: Observe,
    key: PRNGKeyArray,
    x: Float[Array, "particles d"],
    plan: _Schedule,
    params: dict[str, Any],
    quantiles: Sequence[float] = (0.05, 0.5, 0.95),
    history: bool = False,
) -> Filtered:
    levels = np.atleast_1d(np.asarray(real_numbers("quantiles", quantiles)))
    if levels.ndim != 1 or not np.all((levels > 0) & (levels < 1)):
        raise ValueError(f"`quantiles` must be levels between 0 and 1; got {quantiles}.")
    history = checked_flag("history", history)
    found = _run(density, observe, key, x, plan, jnp.asarray(levels), history, params)
    kept = jax.tree.map(lambda a: a[plan.last_jump], found)
    bad = ~np.isfinite(kept["log_evidences"])
    if bad.any():
        index = int(np.argmax(bad))
        value = float(kept["log_evidences"][index])
        where = f"observation {index} at t={float(plan.times[index]):g}"
        if value == -np.inf:
            raise WeightsVanished(
                f"All particles have weight zero at {where}. Use more `particles`, an `initial` "
                "law that covers it, or an `observe` with heavier tails."
            )
        raise WeightsVanished(
            f"`observe` returned {value} at {where}. It must return finite numbers or -inf. Mark "
            "a missing observation by NaN alone."
        )
    return Filtered(times=plan.times, levels=jnp.asarray(levels), **kept)


@eqx.filter_jit
def _run(
    density: AbstractTransitionDensity,
    observe: Observe,
    key: PRNGKeyArray,
    x: Float[Array, "particles d"],
    plan: _Schedule,
    levels: Float[Array, " q"],
    history: bool,
    params: dict[str, Any],
) -> dict[str, Any]:
    # Densities are not defined at time zero, so an observation at the start needs no jump.
    any_time = min(1.0, density.horizon)
    by_component = jax.vmap(weighted_quantiles, (1, None, None), 1)

    def step(state: tuple, jump: tuple) -> tuple[tuple, dict[str, Any]]:
        x, weights = state
        key, begin, gap, y, observed = jump
        move_key, resample_key = jr.split(key)
        begin = begin if density.start_time is None else None
        conditioning: dict[str, Any] = {"params": params, "start_time": begin}
        outside = jnp.mean(density.outside(x, **conditioning))
        new = density.sample(move_key, jnp.where(gap > 0, gap, any_time), x, **conditioning)
        x = jnp.where(gap > 0, new, x)
        log_likelihoods = jax.vmap(lambda x: jnp.asarray(observe(x, y), x.dtype))(x)
        log_weights = jnp.log(weights) + jnp.where(observed, log_likelihoods, 0.0)
        log_evidence = jax.nn.logsumexp(log_weights)
        weights = jnp.exp(log_weights - log_evidence)
        fraction = effective_fraction(weights)
        mean = weights @ x
        kept = {
            "means": mean,
            "variances": weights @ (x - mean[None]) ** 2,
            "quantiles": by_component(x, weights, levels),
            "log_evidences": jnp.where(observed, log_evidence, 0.0),
            "effective_shares": fraction,
            "outside": outside,
            "particles": x if history else None,
            "weights": weights if history else None,
        }
        resampled = lambda: (x[systematic(resample_key, weights, len(x))], first[1])
        return jax.lax.cond(fraction < _RESAMPLE_BELOW, resampled, lambda: (x, weights)), kept

    first = x, jnp.full(len(x), 1 / len(x), x.dtype)
    keys = jr.split(key, len(plan.gaps))
    jumps = (keys, plan.begins, plan.gaps, plan.observations, plan.observed)
    return jax.lax.scan(step, first, jumps)[1]


def _schedule(
    density: AbstractTransitionDensity, times: ArrayLike, observations: ArrayLike, start: float
) -> _Schedule:
    """Return jumps within the density's horizon, from `start` through all `times`."""
    instants, gaps, counts = jumps_to(times, start, density.horizon)
    table = np.asarray(real_numbers("observations", observations), dtype=float)
    if np.any(np.isinf(table)):
        raise ValueError("`observations` must be finite, or NaN if missing.")
    if table.ndim == 0 or len(table) != len(instants):
        raise ValueError(
            f"`observations` must have one entry for each of the {len(instants)} times; got shape "
            f"{table.shape}."
        )
    last_jump = np.cumsum(counts) - 1
    missing = np.isnan(table.reshape(len(table), -1)).all(axis=1)
    observed = np.zeros(counts.sum(), dtype=bool)
    observed[last_jump] = ~missing
    # The value of a missing observation is not used, but NaN would stop under `jax_debug_nans`.
    filled = np.where(missing.reshape(-1, *[1] * (table.ndim - 1)), 0.0, table)
    jumps = np.repeat(gaps / counts, counts)
    begins = jnp.asarray(start + np.cumsum(np.append(0.0, jumps[:-1])))
    check_start_times(density, begins, "filter")
    return _Schedule(
        times=jnp.asarray(instants),
        last_jump=jnp.asarray(last_jump),
        begins=begins,
        gaps=jnp.asarray(jumps),
        observations=jnp.asarray(np.repeat(filled, counts, axis=0)),
        observed=jnp.asarray(observed),
    )


def _initial_particles(
    key: PRNGKeyArray, density: AbstractTransitionDensity, initial: Any, count: int
) -> Float[Array, "particles d"]:
    """Draw `count` states from the initial law."""
    law = getattr(density, "starts", None) if initial is None else initial
    if law is None:
        raise ValueError(
            f"A {type(density).__name__} has no law of starts; pass `initial`: a law, draws of it "
            "or a known state."
        )
    if isinstance(law, AbstractLaw):
        return law.expand(density.dim).sample(key, (count,))
    draws = jnp.atleast_2d(jnp.asarray(real_numbers("initial", law)))
    if draws.ndim != 2 or draws.shape[1] != density.dim or len(draws) == 0:
        raise ValueError(
            f"`initial` must be a law, draws of shape (n, {density.dim}) or one state of shape "
            f"({density.dim},); got shape {np.shape(law)}."
        )
    if not bool(jnp.all(jnp.isfinite(draws))):
        raise ValueError("`initial` must be finite.")
    return draws if len(draws) == count else jr.choice(key, draws, (count,))


def _check_model(
    density: AbstractTransitionDensity, observe: Observe, plan: _Schedule, x: Array, params: Params
) -> None:
    """Raise if the first jumps or observations are not possible."""
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
    sde, began = getattr(density, "sde", None), density.start_time
    if sde is not None and began is not None:
        span = float(jnp.sum(plan.gaps))
        require_homogeneous(member_of(sde, params), began, span, x[:3])
