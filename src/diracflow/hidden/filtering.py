r"""Particle filter for noisy, partial observations at arbitrary times.

Particles jump from one observation to the next by exact samples of the transition density, whatever
the time between observations; no path is simulated in between. At an observation $y$ the weight of
each particle is multiplied by $p(y | x)$. Particles are resampled when the effective sample size
falls below half of their number.

The mean of the weights at each time estimates $p(y_k | y_1, \dots, y_{k-1})$. The product of these
means is an unbiased estimate of the evidence under the process that the density describes.
"""

import warnings
from collections.abc import Sequence
from typing import Any, TypedDict, Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, PRNGKeyArray

from ..distribution.lazy_plot import plotted
from ..distribution.particles import Particles
from ..sde.argument_checks import checked_count, checked_flag, checked_key, real_numbers
from ..sde.laws import AbstractLaw
from ..sde.parameters import Params
from ..transition.transition_density import AbstractTransitionDensity
from ..uses.observed import in_unit
from ..uses.underlying_sde import began_at, scalars
from ..uses.weights import WeightsVanished, weighted_quantiles
from .guided_jumps import checked_proposal
from .hidden_process import Hidden, Observe
from .particle_filter import (
    Schedule,
    check_model,
    initial_particles,
    known,
    run,
    schedule,
)


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
    guided: Bool[Array, " n"] | None = None  # True where particles were drawn near the observation

    @property
    def log_evidence(self) -> Float[Array, ""]:
        """Logarithm of the estimated density of all observations."""
        return jnp.sum(self.log_evidences)

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


class FilterOptions(TypedDict, total=False):
    """Keyword arguments of `filter` that choose the jumps, and what is stored at each time."""

    proposal: str
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
    **options: Unpack[FilterOptions],
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
    - `proposal`: `"bootstrap"` draws particles from the transition density, `"guided"` near the
        observation, which needs two derivatives of `observe`. The default, `"auto"`, chooses before
        each jump by the effective sample sizes of earlier ones.
    - `quantiles`: levels of the quantiles stored for each component; by default 0.05, 0.5 and 0.95.
    - `history`: if `True`, store all particles and weights; by default `False`.

    **Returns:** a `Filtered` with `.means`, `.variances`, `.quantiles`, `.effective_shares`,
    `.outside` and `.guided` at each time, `.log_evidence`, and with `history` also `.particles` and
    `.weights`. Under `jit` and `vmap` an evidence of zero is returned, not raised.

    >>> import jax
    >>> import diracflow as df
    >>> model = df.models.ornstein_uhlenbeck(1)
    >>> data = [0.5, 1.5], [0.3, -0.2], lambda x, y: -0.5 * (y - x[0]) ** 2 / 0.1
    >>> df.filter(jax.random.key(0), model.exact, *data, initial=model.starts).means.shape
    (2, 1)
    """
    key, params = checked_key(key), scalars(density, params)
    times, observations = in_unit(times, observations, unit)
    plan = schedule(density, times, observations, began_at(density, start, "start"))
    particles = checked_count("particles", particles)
    start_key, jump_key = jr.split(key)
    x = initial_particles(start_key, density, initial, particles)
    check_model(density, observe, plan, x, params)
    warn_if_unseen(plan)
    return _filtered(density, observe, jump_key, x, plan, params, **options)


def _filtered(
    density: AbstractTransitionDensity,
    observe: Observe,
    key: PRNGKeyArray,
    x: Float[Array, "particles d"],
    plan: Schedule,
    params: dict[str, Any],
    proposal: str = "auto",
    quantiles: Sequence[float] = (0.05, 0.5, 0.95),
    history: bool = False,
) -> Filtered:
    levels, history = checked_levels(quantiles), checked_flag("history", history)
    hidden = Hidden(density, observe, params)
    proposal = checked_proposal(hidden, proposal, x[0], plan.observations[0])
    found = run(hidden, key, x, plan, Laws(levels), proposal, history)
    kept = jax.tree.map(lambda a: a[plan.last_jump], found)
    require_evidence(plan, kept["log_evidences"])
    particles, weights, _ = (kept.pop(name, None) for name in ("particles", "weights", "parents"))
    return Filtered(times=plan.times, levels=levels, particles=particles, weights=weights, **kept)


def checked_levels(quantiles: Sequence[float]) -> Float[Array, " q"]:
    """Return levels of quantiles as an array."""
    levels = np.atleast_1d(np.asarray(real_numbers("quantiles", quantiles)))
    if levels.ndim != 1 or not np.all((levels > 0) & (levels < 1)):
        raise ValueError(f"`quantiles` must be levels between 0 and 1; got {quantiles}.")
    return jnp.asarray(levels)


class Laws(eqx.Module):
    """Moments and quantiles of weighted particles."""

    levels: Float[Array, " q"]

    def __call__(
        self, x: Float[Array, "particles d"], weights: Float[Array, " particles"]
    ) -> dict[str, Any]:
        mean = weights @ x
        return {
            "means": mean,
            "variances": weights @ (x - mean[None]) ** 2,
            "quantiles": jax.vmap(weighted_quantiles, (1, None, None), 1)(x, weights, self.levels),
        }


def warn_if_unseen(plan: Schedule) -> None:
    """Warn if all observations are missing."""
    if known(plan.observed) and not np.any(plan.observed):
        warnings.warn(
            "All observations are missing: the laws are those of the process, without any data.",
            stacklevel=3,
        )


def require_evidence(plan: Schedule, log_evidences: Float[Array, " n"]) -> None:
    """Raise at the first observation that no particle explains; nothing is known while tracing."""
    if not known(log_evidences) or np.all(np.isfinite(log_evidences)):
        return
    index = int(np.argmax(~np.isfinite(log_evidences)))
    value = float(log_evidences[index])
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
