"""Whether a density that was read answers at all.

Finite parameters do not make finite densities: scales are exponentials of them. To evaluate a
density takes seconds of compilation, so it is done only where a bound on the exponents, from the
largest parameter, leaves the possibility. Trained flows stay below it: parameters are of order one.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..planning.settings import Settings
from ..storage.errors import DataFileError
from ..transition.transition_density import AbstractTransitionDensity
from .learned import LearnedDensity

# Logarithm of the largest number, less a margin for products over components.
_MOST = 650.0
# What a layer adds to the exponent beside its networks: products of inputs up to ten, dimensions.
_BESIDE = 20.0


def require_answers(density: LearnedDensity, starts: Float[np.ndarray, "n d+k"]) -> None:
    """Raise if the log-density is not finite at the horizon, from some starts."""
    if density.horizon == 0 or _exponent(density) < _MOST:
        return
    with jax.enable_x64(True):
        values = np.asarray(_answers(density, jnp.asarray(starts)))
    if not np.all(np.isfinite(values)):
        raise DataFileError(
            f"its parameters, up to {np.abs(density.trajectory.thetas).max():.3g}, make a density "
            "that is not finite."
        )


def _exponent(density: LearnedDensity) -> float:
    """A bound on logarithms of squares of what a flow computes."""
    path, settings = density.trajectory, density.facts.settings
    gaps = np.diff(path.clocks)[:, None]
    # Between knots a cubic leaves them by at most 4/27 of each velocity times the step.
    bends = [np.abs(gaps * table).max(initial=0.0) for table in (path.first, path.last)]
    largest = float(np.abs(path.thetas).max() + 0.15 * sum(bends))
    return 2 * (settings.layers or 0) * _of_layer(settings, largest)


def _of_layer(settings: Settings, largest: float) -> float:
    if settings.flow == "affine":
        return largest + _BESIDE / 4  # outputs of the network are bounded, but for `log_reach`
    return 2 * ((settings.hidden or 0) + 1) * largest + _BESIDE


@eqx.filter_jit
def _answers(
    density: AbstractTransitionDensity, starts: Float[Array, "n d+k"]
) -> Float[Array, " n"]:
    state = density._at_time(jnp.asarray(density.horizon))

    def one(start: Float[Array, " d+k"]) -> Float[Array, ""]:
        end = density._from_noise(state, jnp.zeros(density.noise_dim), start)
        return density._log_prob(state, end, start)

    return jax.vmap(one)(starts)
