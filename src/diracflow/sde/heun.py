"""Simulated paths whose drift is averaged over both ends of each step."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from .conditioning import initial_condition
from .sde import SDE

# Paths that are simulated together: their states should fit in the processor cache.
_TOGETHER = 2048


@eqx.filter_jit
def heun_paths(
    sde: SDE,
    start_time: float | None,
    key: PRNGKeyArray,
    starts: Float[Array, "n d+k"],
    times: Float[Array, " k"],
    steps: int,
) -> Float[Array, "k n d"]:
    """Return the states of paths at several increasing times.

    The mean is accurate to second order in the length of a step, which matters if noise is small.
    There are `steps` of them between two times; `starts` are conditioning vectors.
    """
    begins = jnp.concatenate([jnp.zeros(1, times.dtype), times[:-1]])

    def path(start_and_key: tuple[Array, Array]) -> Float[Array, "k d"]:
        member, x, s = initial_condition(sde, start_time, start_and_key[0])

        def step(x: Array, time_length_noise: tuple[Array, Array, Array]) -> tuple[Array, None]:
            time, length, noise = time_length_noise
            drift = member.drift(time, x)
            moved = jnp.sqrt(length) * member.diffusion(time, x) @ noise
            ahead = member.drift(time + length, x + length * drift + moved)
            return x + length / 2 * (drift + ahead) + moved, None

        def until(x: Array, span_and_key: tuple[Array, Array, Array]) -> tuple[Array, Array]:
            begin, end, key = span_and_key
            length = (end - begin) / steps
            noise = jr.normal(key, (steps, member.noise_dim), x.dtype)
            moments = s + begin + length * jnp.arange(steps)
            x, _ = jax.lax.scan(step, x, (moments, jnp.full(steps, length), noise))
            return x, x

        keys = jr.split(start_and_key[1], len(times))
        return jax.lax.scan(until, x, (begins, times, keys))[1]

    keys = jr.split(key, len(starts))
    return jax.lax.map(path, (starts, keys), batch_size=_TOGETHER).swapaxes(0, 1)
