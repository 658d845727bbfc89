r"""The evidence of noisy, partial observations as a function of parameters and of fixed noise.

All randomness of a particle filter enters as one array of standard normal numbers: draws of the
start, of each jump and of each resampling. The transition density maps noise to states smoothly,
and particles are resampled in their order along Hilbert's space-filling curve (by the algorithm of
Skilling 2004), on which neighbours are near each other. Estimates of the evidence for neighbouring
parameters and noise are therefore close to each other, which correlated pseudo-marginal chains need
(Deligiannidis, Doucet and Pitt 2018).
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.special import ndtr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..sde.laws import AbstractLaw
from ..transition.programs import images
from ..transition.transition_density import AbstractTransitionDensity
from ..uses.underlying_sde import positive_time
from ..uses.weights import systematic
from .guided_jumps import Observe
from .particle_filter import Schedule

# Bits of each coordinate. The lattice then has at least as many cells as there are particles.
_MOST_BITS = 10
_WORD = 30


class Noise(eqx.Module):
    """Independent standard normal numbers, for each of several chains."""

    first: Float[Array, "chains particles d"]
    moves: Float[Array, "chains jumps particles m"]
    combs: Float[Array, "chains jumps"]  # of resampling
    chosen: Float[Array, " chains"]  # of the path that is returned


class Run(eqx.Module):
    """Log-evidence of each observation given the earlier ones, and a path given all."""

    log_evidences: Float[Array, "chains n"]
    path: Float[Array, "chains n d"]

    @property
    def total(self) -> Float[Array, " chains"]:
        """Logarithm of the estimated density of all observations."""
        return jnp.sum(self.log_evidences, axis=1)


class HiddenProcess(eqx.Module):
    """A density with parameters, and noisy observations of one path of its process."""

    density: AbstractTransitionDensity
    observe: Observe
    plan: Schedule
    first: AbstractLaw | Float[Array, "m d"]  # law of the state at the start, or draws of it
    particles: int = eqx.field(static=True)

    def noise(self, key: PRNGKeyArray, chains: int) -> Noise:
        """Return new noise for each chain."""
        density, jumps = self.density, len(self.plan.gaps)
        first, move, comb, choice = jr.split(key, 4)
        return Noise(
            first=jr.normal(first, (chains, self.particles, density.dim)),
            moves=jr.normal(move, (chains, jumps, self.particles, density.noise_dim)),
            combs=jr.normal(comb, (chains, jumps)),
            chosen=jr.normal(choice, (chains,)),
        )

    @eqx.filter_jit
    def run(self, noise: Noise, params: dict[str, Float[Array, " chains"]]) -> Run:
        """Run one filter for each chain, with its noise and its parameters."""
        plan = self.plan
        density = self.density._restricted(positive_time(self.density, jnp.max(plan.gaps)))

        def step(x: Array, jump: tuple) -> tuple[Array, tuple[Array, ...]]:
            noise, comb, gap, begin, y, observed = jump
            moved = _moved(density, noise, x, gap, (begin, params))
            weigh = lambda *args: _weighed(self.observe, *args)
            picked, value = jax.vmap(weigh, (0, 0, None, None))(moved, comb, y, observed)
            after = jnp.take_along_axis(moved, picked[..., None], axis=1)
            return after, (after, picked, value)

        jumps = (jnp.moveaxis(noise.moves, 1, 0), noise.combs.T, plan.gaps, plan.begins)
        seen = (plan.observations, plan.observed)
        last, (states, picked, values) = jax.lax.scan(step, self._start(noise), (*jumps, *seen))
        index = jnp.minimum((_uniform(noise.chosen) * last.shape[1]).astype(int), last.shape[1] - 1)
        path = _ancestry(states, picked, index)[plan.last_jump]
        return Run(values[plan.last_jump].T, jnp.moveaxis(path, 0, 1))

    def _start(self, noise: Noise) -> Float[Array, "chains particles d"]:
        u = _uniform(noise.first)
        if isinstance(self.first, AbstractLaw):
            x = self.first.transport(u)
        else:
            count = len(self.first)
            x = self.first[jnp.minimum((u[..., 0] * count).astype(int), count - 1)]
        return jax.vmap(lambda x: x[curve_order(x)])(x)


def _moved(
    density: AbstractTransitionDensity,
    noise: Float[Array, "chains particles m"],
    x: Float[Array, "chains particles d"],
    gap: Float[Array, ""],
    given: tuple[Array, dict[str, Array]],
) -> Float[Array, "chains particles d"]:
    """Return the states after one jump, given when it starts and the parameters."""
    begin, params = given
    columns = {name: value[:, None] for name, value in params.items()}
    start = density._joined(x, columns, begin if density.start_time is None else None)
    return jnp.where(gap > 0, images(density, positive_time(density, gap), noise, start), x)


def _weighed(
    observe: Observe, x: Float[Array, "particles d"], comb: Array, y: Array, observed: Array
) -> tuple[Array, Array]:
    """Return the particles that resampling picks, and the log-evidence of one observation."""
    log_weights = jax.vmap(lambda x: jnp.asarray(observe(x, y), x.dtype))(x)
    log_weights = jnp.where(observed, log_weights, 0.0)
    value = jax.nn.logsumexp(log_weights) - jnp.log(len(x))
    order = curve_order(x)
    highest = jnp.max(log_weights)
    # If all particles are impossible the evidence says so; any of them may be picked.
    weights = jnp.exp(log_weights - jnp.where(jnp.isfinite(highest), highest, 0.0))[order]
    picked = order[systematic(_uniform(comb), weights, len(x))]
    return jnp.where(observed, picked, order), jnp.where(observed, value, 0.0)


def _ancestry(
    states: Float[Array, "jumps chains particles d"], picked: Array, index: Array
) -> Float[Array, "jumps chains d"]:
    """Return the path that ends at one particle of each chain."""

    def back(index: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        states, picked = row
        chain = jnp.arange(len(index))
        return picked[chain, index], states[chain, index]

    return jax.lax.scan(back, index, (states, picked), reverse=True)[1]


def _uniform(noise: Any) -> Any:
    """Map standard normal numbers into the open unit interval."""
    rounding = jnp.finfo(noise.dtype).eps
    return jnp.clip(ndtr(noise), rounding, 1 - rounding)


def curve_order(x: Float[Array, "n d"]) -> Int[Array, " n"]:
    """Return the indices of points in their order along the curve; in one dimension sorted."""
    dim = x.shape[1]
    if dim == 1:
        return jnp.argsort(x[:, 0])
    bits = max(1, min(_MOST_BITS, _WORD // dim))
    above = x - jnp.mean(x, axis=0, keepdims=True)
    spread = jnp.std(x, axis=0, keepdims=True)
    unit = jax.nn.sigmoid(2 * above / jnp.where(spread > 0, spread, 1.0))
    cells = jnp.minimum((unit * 2**bits).astype(jnp.int32), 2**bits - 1)
    return jnp.argsort(curve_index(list(cells.T), bits))


def curve_index(cells: list[Int[Array, " n"]], bits: int) -> Int[Array, " n"]:
    """Return the position along the curve of cells of a lattice with `2**bits` cells a side."""
    x, masks = list(cells), [1 << bit for bit in range(bits - 1, -1, -1)]
    for mask in masks[:-1]:
        low = mask - 1
        for i in range(len(x)):
            # Where the bit is set, invert the lower bits of the first; else exchange them.
            swap = (x[0] ^ x[i]) & low
            high = (x[i] & mask) > 0
            first = x[0] ^ jnp.where(high, low, swap)
            x[i], x[0] = (first if i == 0 else x[i] ^ jnp.where(high, 0, swap)), first
    for i in range(1, len(x)):
        x[i] = x[i] ^ x[i - 1]
    flips = jnp.zeros_like(x[0])
    for mask in masks[:-1]:
        flips = flips ^ jnp.where((x[-1] & mask) > 0, mask - 1, 0)
    index = jnp.zeros_like(flips)
    for bit in range(bits - 1, -1, -1):
        for part in x:
            index = 2 * index + (((part ^ flips) >> bit) & 1)
    return index
