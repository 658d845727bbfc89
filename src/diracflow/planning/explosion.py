r"""Whether paths leave for infinity: asked when a training has failed, to name the cause.

Paths are followed by Euler--Maruyama steps as short as the slopes of the drift ask for, so that a
restoring drift, however stiff, does not throw them out. Under a drift that grows faster than the
state they reach any bound in finite time; steps shrink on the way, and the clock stands still.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from ..sde.conditioning import initial_condition
from ..sde.laws import AbstractLaw
from ..sde.sde import SDE

_PATHS, _STEPS = 256, 2048
# The slopes of the drift times a step; what it may be of the horizon; and what stands still.
_TURN, _LONGEST, _STILL = 0.1, 1 / 512, 1e-9
# A path is lost when it is so many times as far out as the widest of starts, noise and drift.
_VAST = 1e6


def explodes(sde: SDE, starts: AbstractLaw, start_time: float | None, horizon: float) -> bool:
    """Whether some paths from draws of `starts` grow beyond all bounds before the horizon."""
    x0 = starts.sample(jr.key(0), (_PATHS,))
    x, step = followed(sde, start_time, jnp.asarray(horizon), x0)
    start = np.asarray(x0)[:, : sde.dim]
    scale = float(np.max(np.abs(start))) + _reach(sde, start_time, horizon, x0)
    away = np.max(np.abs(np.asarray(x) - start), axis=1) > _VAST * scale
    # A path that has met NaN tells nothing.
    return bool(np.any(away | (np.asarray(step) < _STILL * horizon)))


def _reach(sde: SDE, start_time: float | None, horizon: float, x0: Float[Array, "n d+k"]) -> float:
    """How far noise, and the drift at the starts, could carry a path."""
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
def followed(
    sde: SDE, start_time: float | None, horizon: Float[Array, ""], x0: Float[Array, "n d+k"]
) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
    """Where paths are in the end, and how long their last step was; the horizon if they got there.

    A path stops at the horizon, or where coefficients cease to be finite.
    """

    def one(g: Float[Array, " d+k"], key: Array) -> tuple[Array, Array]:
        member, start, s = initial_condition(sde, start_time, g)

        def step(state: tuple, noise: Array) -> tuple[tuple, None]:
            x, tau, _ = state
            slopes = jax.jacfwd(lambda y: member.drift(s + tau, y))(x)
            left = horizon - tau
            length = jnp.minimum(_TURN / jnp.linalg.norm(slopes), _LONGEST * horizon)
            length = jnp.minimum(length, left)
            move = length * member.drift(s + tau, x)
            new = x + move + jnp.sqrt(length) * member.diffusion(s + tau, x) @ noise
            goes_on = jnp.all(jnp.isfinite(new)) & (left > 0)
            last = jnp.where(left > 0, jnp.where(goes_on, length, state[2]), horizon)
            return (jnp.where(goes_on, new, x), jnp.where(goes_on, tau + length, tau), last), None

        noise = jr.normal(key, (_STEPS, sde.noise_dim))
        state, _ = jax.lax.scan(step, (start, jnp.zeros(()), horizon), noise)
        return state[0], state[2]

    return jax.vmap(one)(x0, jr.split(jr.key(1), len(x0)))
