r"""Laws of a hidden state given all observations, by backward simulation.

A particle filter leaves weighted particles $x_k^j$ of weight $W_k^j$ after each jump. If a path is
at $x_{k+1}$, it was at $x_k^j$ before with probability proportional to
$W_k^j\,\rho(x_{k+1} | t, x_k^j)$. To normalise these numbers takes one density for each particle.
A Markov step that leaves their law invariant takes few (Bunch and Godsill 2013): it begins at the
ancestor of the particle $x_{k+1}$, draws some `candidates` with the weights $W_k$, and selects one
of them or the ancestor in proportion to $\rho$. Without candidates, the paths are the genealogies
of the filter, of which few are left after many resamplings.
"""

import warnings
from collections.abc import Sequence
from typing import Any, TypedDict, Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray

from ..distribution.particles import Particles
from ..sde.argument_checks import checked_count, checked_key
from ..sde.laws import AbstractLaw
from ..sde.parameters import Params
from ..sde.sde import SDE
from ..transition.transition_density import AbstractTransitionDensity
from ..uses.connecting import connected
from ..uses.simulation import Paths
from ..uses.underlying_sde import positive_time
from ..uses.weights import systematic
from .filtering import require_evidence
from .guided_jumps import Observe
from .laws_over_time import AbstractHiddenLaws, checked_levels, laws
from .particle_filter import FilterTask, Schedule, checked_proposal, filter_task, known, run

# Fewer different states at one time are reported.
_FEW = 20


class Smoothed(AbstractHiddenLaws):
    """Laws of the state at each time, given the observations at all times, and joint paths.

    The evidence and the effective shares are those of the filter.
    """

    distinct: Float[Array, " n"]  # number of different states divided by the number of paths
    paths: Float[Array, "paths n d"]
    chain: Paths  # at the ends of all jumps, of which several cross a long gap
    density: AbstractTransitionDensity
    params: dict[str, Array]

    def at(self, index: int) -> Particles:
        """Return the law of the state at one time, with moments, quantiles and draws.

        **Arguments:**

        - `index`: the index of the time; negative ones count from the end.
        """
        self._check_index(index)
        x = self.paths[:, index]
        return Particles(x, jnp.full(len(x), 1 / len(x), x.dtype))

    def bridged(
        self,
        key: PRNGKeyArray | int,
        steps: int = 20,
        paths: int = 200,
        *,
        proposals: int = 8,
        sde: SDE | None = None,
    ) -> Paths:
        """Draw paths between the times as well, by bridges from each state to the next.

        **Arguments:**

        - `key`: a random key, or a seed.
        - `steps`: number of time steps in each gap; they shorten towards its end.
        - `paths`: number of paths, at most those that were drawn.
        - `proposals`: number of weighted paths, as for `diracflow.bridge`, from which each piece is
            selected.
        - `sde`: the equation, required if the density does not carry its own.

        **Returns:** `Paths` with `.times`, `.states` of shape `(paths, times, d)` and `.plot()`.
        """
        key, steps = checked_key(key), checked_count("steps", steps, least=2)
        number, of_each = checked_count("paths", paths), checked_count("proposals", proposals)
        stored = self.chain.states
        if number > len(stored):
            raise ValueError(f"`paths` must be at most {len(stored)}, as smoothed; got {number}.")
        # Neighbours start from equal particles; an even choice has more different ones.
        chosen = stored[np.linspace(0, len(stored) - 1, number).astype(int)]
        chain = Paths(self.chain.times, chosen)
        return connected(key, self.density, chain, steps, of_each, sde, self.params)

    def to_xarray(self) -> Any:
        """Return an `xarray.Dataset` with the laws at each time, and the paths."""
        states = ("path", "time", "component"), np.asarray(self.paths)
        return super().to_xarray().assign(state=states)


class SmoothOptions(TypedDict, total=False):
    """Keyword arguments of `smooth` that choose jumps, backward steps and results."""

    paths: int
    candidates: int
    proposal: str
    quantiles: Sequence[float]


def smooth(
    key: PRNGKeyArray | int,
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
    **options: Unpack[SmoothOptions],
) -> Smoothed:
    r"""Estimate the laws of a hidden diffusion given all observations, and draw its paths.

    **Arguments:**

    - `key`, `density`, `times`, `observations`, `observe`, `particles`, `initial`, `start`,
        `params`, `unit`, `proposal`, `quantiles`: as for `diracflow.filter`.
    - `paths`: number of joint paths; by default that of particles.
    - `candidates`: number of particles that compete with the ancestor at each backward step, by
        default 16. A path takes one more density than this for each jump.

    **Returns:** a `Smoothed` with `.means`, `.variances`, `.quantiles` and `.distinct` at each
    time, `.paths`, `.log_evidence`, the law `.at(index)` and `.bridged(key)`, paths between the
    times. Warns if few different states are left at one time.

    >>> import jax
    >>> import diracflow as df
    >>> model = df.models.ornstein_uhlenbeck(1)
    >>> data = [0.5, 1.5], [0.3, -0.2], lambda x, y: -0.5 * (y - x[0]) ** 2 / 0.1
    >>> df.smooth(jax.random.key(0), model.exact, *data, initial=model.starts).paths.shape
    (1000, 2, 1)
    """
    start_key, *keys = jr.split(checked_key(key), 3)
    data = times, observations, unit
    task = filter_task(start_key, density, data, observe, particles, initial, start, params)
    return _smoothed(task, keys, **options)


def _smoothed(
    task: FilterTask,
    keys: list[PRNGKeyArray],
    paths: int | None = None,
    candidates: int = 16,
    proposal: str = "auto",
    quantiles: Sequence[float] = (0.05, 0.5, 0.95),
) -> Smoothed:
    plan, x = task.plan, task.x
    count = len(x) if paths is None else checked_count("paths", paths)
    rivals = checked_count("candidates", candidates, least=0)
    levels = checked_levels(quantiles)
    found = run(task, keys[0], None, checked_proposal(task, proposal), True)
    require_evidence(plan, found["log_evidences"][plan.last_jump])
    states, distinct = _backward(task, keys[1], found, count, rivals)
    ends = plan.last_jump + 1
    _warn_if_few(plan, distinct[ends])
    equal = jnp.full(count, 1 / count, x.dtype)
    summaries = jax.vmap(laws, (1, None, None))(states[:, ends], equal, levels)
    # An observation at the start ends a jump that takes no time.
    first = int(plan.gaps[0] == 0)
    instants = jnp.append(plan.begins[0], plan.begins + plan.gaps)[first:]
    of_filter = ("log_evidences", "effective_shares", "outside")
    return Smoothed(
        times=plan.times,
        levels=levels,
        distinct=distinct[ends] / count,
        paths=states[:, ends],
        chain=Paths(instants, states[:, first:]),
        density=task.hidden.density,
        params=task.hidden.params,
        **summaries,
        **{name: found[name][plan.last_jump] for name in of_filter},
    )


@eqx.filter_jit
def _backward(
    task: FilterTask,
    key: PRNGKeyArray,
    found: dict[str, Any],
    paths: int,
    candidates: int,
) -> tuple[Float[Array, "paths jumps+1 d"], Int[Array, " jumps+1"]]:
    """Return paths from the start through the ends of all jumps, and counts of distinct states."""
    (hidden, plan, x), (last_key, key) = task, jr.split(key)
    particles = jnp.concatenate([x[None], found["particles"]])
    weights = jnp.concatenate([jnp.full((1, len(x)), 1 / len(x), x.dtype), found["weights"]])
    everyone = jnp.arange(len(x), dtype=found["parents"].dtype)
    parents = jnp.concatenate([everyone[None], found["parents"][:-1]])
    last = systematic(jr.uniform(last_key), weights[-1], paths).astype(parents.dtype)

    def step(state: tuple, jump: tuple) -> tuple[tuple, tuple]:
        index, later = state
        key, x, weights, parents, begin, gap = jump
        draw_key, pick_key = jr.split(key)
        cumulated = jnp.cumsum(weights)
        u = cumulated[-1] * jr.uniform(draw_key, (paths, candidates), x.dtype)
        rivals = jnp.minimum(jnp.searchsorted(cumulated, u, side="right"), len(x) - 1)
        ancestor = parents[index][:, None]
        several = jnp.concatenate([ancestor, rivals.astype(ancestor.dtype)], axis=1)
        query = later[:, None], positive_time(hidden.density, gap), x[several]
        log_rho = hidden.density.log_prob(*query, **hidden.conditioning(begin))
        picked = jnp.where(gap > 0, jr.categorical(pick_key, log_rho), 0)
        index = jnp.take_along_axis(several, picked[:, None], axis=1)[:, 0]
        return (index, x[index]), (x[index], _distinct(index))

    keys = jr.split(key, len(plan.gaps))
    jumps = keys, particles[:-1], weights[:-1], parents, plan.begins, plan.gaps
    end = particles[-1][last]
    _, (states, distinct) = jax.lax.scan(step, (last, end), jumps, reverse=True)
    states = jnp.concatenate([states, end[None]])
    return jnp.swapaxes(states, 0, 1), jnp.append(distinct, _distinct(last))


def _distinct(index: Int[Array, " n"]) -> Int[Array, ""]:
    """Return the number of different entries."""
    return 1 + jnp.sum(jnp.diff(jnp.sort(index)) != 0)


def _warn_if_few(plan: Schedule, distinct: Int[Array, " n"]) -> None:
    if not known(distinct):
        return
    fewest = int(np.argmin(distinct))
    if distinct[fewest] < _FEW:
        warnings.warn(
            f"All paths pass through {int(distinct[fewest])} particles at "
            f"t={float(plan.times[fewest]):g}: laws there are inaccurate. Use more `particles` or "
            "`candidates`.",
            stacklevel=4,
        )
