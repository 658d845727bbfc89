r"""A test for explosion in finite time, made when training has failed.

Paths are simulated by Euler--Maruyama steps that are short relative to the drift Jacobian, so that
a stiff restoring drift stays stable. Under a drift that grows faster than linearly, paths exceed
any bound in finite time, and the steps shrink to zero before that time.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from ..sde.conditioning import initial_condition
from ..sde.problem import Problem
from ..sde.sde import SDE

_PATHS, _STEPS = 256, 2048
# Bounds of a step: the drift Jacobian times its length, and its multiple of the mean step. A last
# step shorter than the third share of the horizon means that the path did not reach it.
_STEP, _LONGEST, _SHORTEST = 0.1, 4, 1e-9
# A path explodes if it moves by this multiple of the scale of starts, noise and drift.
_VAST = 1e6


def explodes(problem: Problem) -> bool:
    """Return `True` if some paths exceed all bounds before the horizon."""
    sde, start_time, horizon = problem.equation, problem.start_time, problem.horizon
    x0 = problem.law.sample(jr.key(0), (_PATHS,))
    x, step = simulated(sde, start_time, jnp.asarray(horizon), x0)
    start = np.asarray(x0)[:, : sde.dim]
    scale = float(np.max(np.abs(start))) + _reach(sde, start_time, horizon, x0)
    away = np.max(np.abs(np.asarray(x) - start), axis=1) > _VAST * scale
    # A path that stopped at a coefficient that is not finite is not counted.
    return bool(np.any(away | (np.asarray(step) < _SHORTEST * horizon)))


def _reach(sde: SDE, start_time: float | None, horizon: float, x0: Float[Array, "n d+k"]) -> float:
    """Return the distance over which noise, and the drift at the starts, carry a path."""
    noise, drift = (np.asarray(values) for values in _sizes(sde, start_time, x0))
    return float(np.median(noise) * np.sqrt(horizon) + np.median(drift) * horizon)


@eqx.filter_jit
def _sizes(
    sde: SDE, start_time: float | None, x0: Float[Array, "n d+k"]
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    def one(g: Float[Array, " d+k"]) -> tuple[Array, Array]:
        member, x, s = initial_condition(sde, start_time, g)
        return jnp.linalg.norm(member.diffusion(s, x)), jnp.linalg.norm(member.drift(s, x))

    return jax.vmap(one)(x0)


@eqx.filter_jit
def simulated(
    sde: SDE,
    start_time: float | None,
    horizon: Float[Array, ""],
    x0: Float[Array, "n d+k"],
) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
    """Simulate paths; return their ends and the lengths of their last steps.

    A path stops at the horizon, where the second result is the horizon itself, or where a
    coefficient is not finite.
    """

    def one(g: Float[Array, " d+k"], key: Array) -> tuple[Array, Array]:
        member, start, s = initial_condition(sde, start_time, g)

        def advance(state: tuple, noise: Array) -> tuple[tuple, None]:
            x, tau, _ = state
            jacobian = jax.jacfwd(lambda y: member.drift(s + tau, y))(x)
            left = horizon - tau
            length = jnp.minimum(_STEP / jnp.linalg.norm(jacobian), _LONGEST / _STEPS * horizon)
            length = jnp.minimum(length, left)
            move = length * member.drift(s + tau, x)
            new = x + move + jnp.sqrt(length) * member.diffusion(s + tau, x) @ noise
            moves = jnp.all(jnp.isfinite(new)) & (left > 0)
            last = jnp.where(left > 0, jnp.where(moves, length, state[2]), horizon)
            return (jnp.where(moves, new, x), jnp.where(moves, tau + length, tau), last), None

        noise = jr.normal(key, (_STEPS, sde.noise_dim))
        state, _ = jax.lax.scan(advance, (start, jnp.zeros(()), horizon), noise)
        return state[0], state[2]

    return jax.vmap(one)(x0, jr.split(jr.key(1), len(x0)))
