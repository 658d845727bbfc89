r"""Particle filter for noisy, partial observations at arbitrary times.

Particles jump from one observation to the next by exact samples of the transition density, whatever
the time between observations; no path is simulated in between. At an observation $y$ the weight of
each particle is multiplied by $p(y | x)$. Particles are resampled when the effective sample size
falls below half of their number.

The mean of the weights at each time estimates $p(y_k | y_1, \dots, y_{k-1})$. The product of these
means is an unbiased estimate of the evidence under the process that the density describes.
"""

from collections.abc import Sequence
from typing import TypedDict, Unpack

import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, PRNGKeyArray

from ..distribution.particles import Particles
from ..sde.argument_checks import checked_flag, checked_key
from ..sde.laws import AbstractLaw
from ..sde.parameters import Params
from ..transition.transition_density import AbstractTransitionDensity
from ..uses.weights import WeightsVanished
from .guided_jumps import Observe
from .laws_over_time import AbstractHiddenLaws, checked_levels
from .particle_filter import FilterTask, Schedule, checked_proposal, filter_task, known, run


class Filtered(AbstractHiddenLaws):
    """Laws of the state given the observations up to each time."""

    particles: Float[Array, "n particles d"] | None
    weights: Float[Array, "n particles"] | None
    guided: Bool[Array, " n"] | None = None  # True where particles were drawn near the observation

    def at(self, index: int) -> Particles:
        """Return the law of the state at one time, with moments, quantiles and draws.

        Only filters with `history=True` have stored it.

        **Arguments:**

        - `index`: the index of the time; negative ones count from the end.
        """
        if self.particles is None or self.weights is None:
            raise ValueError("Particles were not stored; call `filter` with `history=True`.")
        self._check_index(index)
        return Particles(self.particles[index], self.weights[index])


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
    start_key, jump_key = jr.split(checked_key(key))
    data = times, observations, unit
    task = filter_task(start_key, density, data, observe, particles, initial, start, params)
    return _filtered(task, jump_key, **options)


def _filtered(
    task: FilterTask,
    key: PRNGKeyArray,
    proposal: str = "auto",
    quantiles: Sequence[float] = (0.05, 0.5, 0.95),
    history: bool = False,
) -> Filtered:
    levels, history = checked_levels(quantiles), checked_flag("history", history)
    plan, proposal = task.plan, checked_proposal(task, proposal)
    found = run(task, key, levels, proposal, history)
    kept = jax.tree.map(lambda a: a[plan.last_jump], found)
    require_evidence(plan, kept["log_evidences"])
    particles, weights, _ = (kept.pop(name, None) for name in ("particles", "weights", "parents"))
    return Filtered(times=plan.times, levels=levels, particles=particles, weights=weights, **kept)


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
