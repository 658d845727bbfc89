"""The stationary law of a process whose coefficients do not depend on time.

Clouds of draws from starts that are far apart jump until they can no longer be told from each other
and from themselves at half the time. The first alone would not do: the laws of a Brownian motion
from two starts approach each other too, but spread forever.
"""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.stats import ks_2samp

from ..distribution.abstract_distribution import AbstractDistribution
from ..sde.argument_checks import checked_count, checked_key, checked_number
from ..sde.delegation import delegated
from ..sde.domains import each
from ..sde.laws import AbstractLaw
from ..sde.parameters import Params
from ..transition.transition_density import AbstractTransitionDensity
from .green import propagate
from .simulation import simulate
from .underlying_sde import scalars

# Draws in the cloud of each start.
_DRAWS = 8192
# The first time of a density without horizon; it is doubled until the laws agree.
_FIRST_TIME = 1.0
# Starts are this many standard deviations of the start law from its centre.
_APART = 2.0


class StationaryLaw(AbstractDistribution):
    """The law that a process approaches from all starts."""

    law: AbstractDistribution
    time: float = eqx.field(static=True)  # at which the laws of all starts agree
    distance: float = eqx.field(static=True)  # between starts: difference of distribution functions

    dim = delegated("law.dim")
    domain = delegated("law.domain")
    noise_dim = delegated("law.noise_dim")
    _traits = delegated("law._traits")
    _images = delegated("law._images")
    _log_probs = delegated("law._log_probs")
    _simulated = delegated("law._simulated")
    _draw = delegated("law._draw")


def stationary(
    density: AbstractTransitionDensity,
    *,
    starts: AbstractLaw | None = None,
    params: Params | None = None,
    tolerance: float = 0.03,
    doublings: int = 10,
    key: PRNGKeyArray | int = 0,
) -> StationaryLaw:
    """Return the law that the process approaches from all starts.

    **Arguments:**

    - `density`: a transition density whose coefficients do not depend on time.
    - `starts`: a law; two starts far apart are taken from it. The default is the start law of a
        learned density, and two standard deviations about the centre of the domain of others.
    - `params`: parameters of the SDE, if the density has any.
    - `tolerance`: largest difference between distribution functions of a component, between starts
        and between half the time and the whole. Clouds of 8192 draws cannot resolve less than 0.02.
    - `doublings`: the longest time is the horizon (or 1, if there is none) times two to this power.
    - `key`: a random key, or a seed.

    **Returns:** the law, with the `time` at which the starts agreed and their `distance`.

    >>> import diracflow as df
    >>> law = df.stationary(df.models.ornstein_uhlenbeck(1, rate=1.0, noise=1.0).exact)
    >>> print(f"{float(law.var()[0]):.3f}")
    0.500
    """
    params, key = scalars(density, params), checked_key(key)
    tolerance = checked_number("tolerance", tolerance)
    doublings = checked_count("doublings", doublings)
    if density.start_time is None:
        raise ValueError(
            "This density depends on the start time, so that the process has no stationary law. "
            "Use `diracflow.simulate` over the times of interest."
        )
    clouds = [jnp.broadcast_to(x, (_DRAWS, density.dim)) for x in _far_apart(density, starts)]
    finite = bool(np.isfinite(density.horizon))
    time, step, between, change = 0.0, density.horizon if finite else _FIRST_TIME, 1.0, 1.0
    for number in range(doublings + 1):
        # From the start to the first time, and then from each time to twice that time.
        length = step if number == 0 else time
        earlier, time, keys = clouds, time + length, jr.split(jr.fold_in(key, number), len(clouds))
        ends = np.array([density.start_time + length])
        clouds = [
            simulate(k, density, ends, x, _DRAWS, params=params).states[:, 0]
            for k, x in zip(keys, clouds, strict=True)
        ]
        between = _distance(clouds[0], clouds[1])
        change = max(_distance(a, b) for a, b in zip(earlier, clouds, strict=True))
        if max(between, change) <= tolerance:
            law = _law(density, params, clouds, time)
            return StationaryLaw(law, time, between)
    raise ValueError(_none_found(time, between, change, tolerance))


def _none_found(time: float, between: float, change: float, tolerance: float) -> str:
    return (
        f"No stationary law was found up to t={time:g}: the distribution functions of two starts "
        f"differ by {between:.2g}, and those at half the time and the whole by {change:.2g}; at "
        f"most {tolerance:g} was asked for. Processes such as Brownian motion spread forever and "
        "have no stationary law. If this one mixes slowly, increase `doublings`."
    )


def _law(
    density: AbstractTransitionDensity, params: dict, clouds: list[Array], time: float
) -> AbstractDistribution:
    """Return the law after one more horizon from all draws, or at the time itself."""
    if not np.isfinite(density.horizon):
        return density.at(time, clouds[0][0], params)
    pooled = jnp.concatenate([cloud[: _DRAWS // 4] for cloud in clouds])
    return propagate(density, pooled, density.horizon, params=params)


def _far_apart(
    density: AbstractTransitionDensity, starts: AbstractLaw | None
) -> list[Float[Array, " d"]]:
    law = getattr(density, "starts", None) if starts is None else starts
    signs = [jnp.full(density.dim, sign) for sign in (-_APART, _APART)]
    if isinstance(law, AbstractLaw):
        own = law.expand(density.dim)
        return [own.from_uniform(ndtr(z)) for z in signs]
    return [each(density.domain, "from_real", z) for z in signs]


def _distance(a: Float[Array, "n d"], b: Float[Array, "n d"]) -> float:
    """Return the largest difference of the empirical distribution functions of a component."""
    columns = zip(np.asarray(a).T, np.asarray(b).T, strict=True)
    return max(float(ks_2samp(x, y, method="asymp").statistic) for x, y in columns)
