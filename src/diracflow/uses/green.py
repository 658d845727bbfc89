r"""Densities from an arbitrary initial law.

The transition density is the Green's function of the Fokker--Planck equation, so after
a time $t$ a law $p_0$ becomes $\int \rho(x | t, x_0)\,p_0(x_0)\,dx_0$. We
average over draws from $p_0$, in log space, since transition densities underflow.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from ..galerkin.collocation import sobol
from ..problem.laws import AbstractLaw
from ..problem.transition import AbstractTransitionDensity, log_probs

# Pairs of query point and draw evaluated at once.
_CHUNK = 2**16


class Propagated(eqx.Module):
    """The law at time `t` of the process started from equally weighted draws."""

    density: AbstractTransitionDensity
    draws: Float[Array, "n d"]
    t: Float[Array, ""]

    def log_prob(self, x: Float[ArrayLike, "*batch d"]) -> Float[Array, "*batch"]:
        r"""Log-density at `x`; the relative error of the density decays as $n^{-1/2}$."""
        x = jnp.asarray(x, self.draws.dtype)
        if x.ndim == 0 or x.shape[-1] != self.density.dim:
            raise ValueError(
                f"The last axis of `x` must have length {self.density.dim}; got shape {x.shape}."
            )
        return _log_mean(self, x.reshape(-1, x.shape[-1])).reshape(x.shape[:-1])

    def prob(self, x: Float[ArrayLike, "*batch d"]) -> Float[Array, "*batch"]:
        """Density at `x`."""
        return jnp.exp(self.log_prob(x))

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Float[Array, "*shape d"]:
        """Independent draws of shape `shape + (dim,)`, each from a random one of the starts."""
        pick_key, move_key = jr.split(key)
        picked = jr.randint(pick_key, shape, 0, len(self.draws))
        return self.density.sample(move_key, self.t, self.draws[picked])


def propagate(
    density: AbstractTransitionDensity,
    law_or_draws: AbstractLaw | Float[ArrayLike, "n d"],
    t: float,
    *,
    draws: int = 4096,
) -> Propagated:
    r"""Solve the Fokker--Planck equation from an initial law $p_0$.

    **Arguments:**

    - `density`: a transition density, learned or exact.
    - `law_or_draws`: the law, such as `diracflow.Normal(0.0, 1.0)`, or independent samples of it,
        one a row.
    - `t`: time since the start, within the density's horizon.
    - `draws`: how many quasi-random draws stand for a law.

    **Returns:**

    The law at time `t`, with `log_prob(x)`, `prob(x)` and `sample(key, shape)`. The transition
    density must be wide compared with the distance between draws, or single draws show.
    """
    if isinstance(law_or_draws, AbstractLaw):
        array = _spread(law_or_draws.expand(density.dim), density.dim, draws)
    else:
        array = jnp.asarray(law_or_draws, jnp.result_type(float))
    if array.ndim != 2 or array.shape[1] != density.dim or len(array) == 0:
        raise ValueError(f"Draws must have shape (n, {density.dim}) with n > 0; got {array.shape}.")
    if jnp.ndim(t) != 0:
        raise ValueError(f"`t` must be one time; got shape {jnp.shape(t)}.")
    time, array = density._checked(t, draws=array)
    return Propagated(density, array, time)


def _spread(law: AbstractLaw, dim: int, count: int) -> Float[Array, "n d"]:
    if count < 1:
        raise ValueError(f"`draws` must be at least 1; got {count}.")
    return law.transport(sobol(jr.key(0), count, dim))


@eqx.filter_jit
def _log_mean(law: Propagated, x: Float[Array, "m d"]) -> Float[Array, " m"]:
    n = len(law.draws)

    def at(x: Float[Array, " d"]) -> Float[Array, ""]:
        log_terms = log_probs(law.density, law.t, x, law.draws)
        return jax.nn.logsumexp(log_terms) - jnp.log(n)

    return jax.lax.map(at, x, batch_size=max(1, _CHUNK // n))
