r"""A coupling whose components move by smooth, strictly increasing functions.

$$v \mapsto e^{a}\Big(v + \sum_k \frac{\alpha_k}{w_k}\tanh(w_k(v - b_k))\Big) + h,
  \qquad \sum_k\max(-\alpha_k, 0) < \gamma < 1,\ w_k > 0.$$

The slope is at least $e^a(1-\gamma)$, so the layer is invertible whatever its coefficients are; all
of them are functions of the idle components and of the context. With no idle components it still
bends and splits a density, which is what one dimension needs.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .networks import OwnNetworks, SharedNetwork

# Newton steps or halvings; the bracket shrinks to rounding in as many halvings at the latest.
_MOST_ITERATIONS = 60
# Width of the corner of the smoothed negative part of a weight.
_SMOOTHING = 0.2


def outputs(bumps: int) -> int:
    """Coefficients of a component whose function has so many bumps."""
    return 2 + 3 * bumps


class Bumps(eqx.Module):
    r"""The function $v + \sum_k\frac{\alpha_k}{w_k}\tanh(w_k(v-b_k))$."""

    weight: Float[Array, "moved k"]  # alpha
    steepness: Float[Array, "moved k"]
    centre: Float[Array, "moved k"]

    def __call__(
        self, v: Float[Array, " moved"]
    ) -> tuple[Float[Array, " moved"], Float[Array, " moved"]]:
        """Value and slope."""
        wave = jnp.tanh(self.steepness * (v[:, None] - self.centre))
        value = v + jnp.sum(self.weight / self.steepness * wave, axis=1)
        return value, 1 + jnp.sum(self.weight * (1 - wave**2), axis=1)

    def reach(self) -> Float[Array, " moved"]:
        """How far a value can lie from its argument."""
        return jnp.sum(jnp.abs(self.weight) / self.steepness, axis=1)


class MonotoneCoupling(eqx.Module):
    """Moves some components given the idle ones and the context.

    `network` gives scale, shift and bumps of each component, as `outputs` numbers for each.
    """

    network: SharedNetwork | OwnNetworks
    bumps: int = eqx.field(static=True)
    gamma: float = eqx.field(static=True)

    def to_source(
        self,
        moved: Float[Array, " moved"],
        idle: Float[Array, " idle"],
        context: Float[Array, " c"],
    ) -> tuple[Float[Array, " moved"], Float[Array, ""]]:
        """The image of the moved components, and the log-determinant."""
        log_scale, shift, bumps = self._coefficients(idle, context)
        value, slope = bumps(moved)
        return jnp.exp(log_scale) * value + shift, jnp.sum(log_scale + jnp.log(slope))

    def from_source(
        self,
        moved: Float[Array, " moved"],
        idle: Float[Array, " idle"],
        context: Float[Array, " c"],
    ) -> Float[Array, " moved"]:
        """Inverse of `to_source`."""
        log_scale, shift, bumps = self._coefficients(idle, context)
        return preimage((moved - shift) * jnp.exp(-log_scale), bumps)

    def _coefficients(self, idle: Array, context: Array) -> tuple[Array, Array, Bumps]:
        k, out = self.bumps, self.network(idle, context)
        bumps = Bumps(
            weight=bounded_below(out[:, 2 : 2 + k] / k, self.gamma),
            steepness=jnp.exp(out[:, 2 + k : 2 + 2 * k]),
            # Spread over the bulk of a standard normal law at the start.
            centre=out[:, 2 + 2 * k :] + jnp.linspace(-2, 2, k, dtype=out.dtype)[None],
        )
        return out[:, 0], out[:, 1], bumps


@jax.custom_jvp
def preimage(y: Float[Array, " moved"], bumps: Bumps) -> Float[Array, " moved"]:
    """The argument at which `bumps` takes the value `y`.

    Newton's iteration within a bracket, by halving where it would leave it. Derivatives come from
    the implicit function theorem.
    """

    def unfinished(state: tuple) -> Array:
        _, _, _, change, count = state
        scale = 1 + jnp.max(jnp.abs(y), initial=0.0)
        return (change > 8 * jnp.finfo(y.dtype).eps * scale) & (count < _MOST_ITERATIONS)

    def improve(state: tuple) -> tuple:
        v, low, high, _, count = state
        value, slope = bumps(v)
        low, high = jnp.where(value < y, v, low), jnp.where(value > y, v, high)
        newton = v - (value - y) / slope
        inside = (newton >= low) & (newton <= high)
        better = jnp.where(inside, newton, 0.5 * (low + high))
        return better, low, high, jnp.max(jnp.abs(better - v), initial=0.0), count + 1

    reach = bumps.reach()
    start = (y, y - reach, y + reach, jnp.asarray(jnp.inf, y.dtype), 0)
    return jax.lax.while_loop(unfinished, improve, start)[0]


@preimage.defjvp
def _preimage_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    y, bumps = primals
    y_dot, bumps_dot = tangents
    v = preimage(y, bumps)
    _, slope = bumps(v)
    _, moved = jax.jvp(lambda b: b(v)[0], (bumps,), (bumps_dot,))
    return v, (y_dot - moved) / slope


def bounded_below(raw: Float[Array, "moved k"], gamma: float) -> Float[Array, "moved k"]:
    """Weights whose negative parts add up to less than `gamma`.

    One bound for all of them, approached slowly. With a bound for each that they neared
    exponentially fast some got stuck there: on Beneš the residual then grew a thousandfold, and
    errors at the horizon between 1e-7 and 2e-4 were a matter of the seed.
    """
    negative = 0.5 * (jnp.sqrt(raw**2 + _SMOOTHING**2) - raw)
    return raw / (1 + jnp.sum(negative, axis=1, keepdims=True) / gamma)
