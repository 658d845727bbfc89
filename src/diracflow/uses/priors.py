"""Laws of parameters before any data are seen."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array

from ..sde.laws import AbstractLaw, LogNormal, Normal, Uniform
from ..sde.parameters import check_names
from ..transition.transition_density import AbstractTransitionDensity
from .extras import extra

# Draws by which a prior is judged.
_TRIALS = 1000


def checked_prior(density: AbstractTransitionDensity, prior: Mapping[str, Any]) -> dict[str, Any]:
    """The prior as NumPyro distributions, inside the range in which the density is known."""
    if not density.params:
        raise ValueError("This density has no parameters to infer.")
    check_names(density.params, prior)
    laws = {name: _distribution(name, prior[name]) for name in density.params}
    for name, law in laws.items():
        _check_range(name, law, *density.param_bounds.get(name, (-np.inf, np.inf)))
    return laws


def prior_draws(laws: Mapping[str, Any]) -> dict[str, Array]:
    """Draws of every parameter."""
    keys = jr.split(jr.key(0), len(laws))
    return {
        name: law.sample(key, (_TRIALS,))
        for key, (name, law) in zip(keys, laws.items(), strict=True)
    }


def _distribution(name: str, law: Any) -> Any:
    distributions = extra("numpyro.distributions")
    if isinstance(law, distributions.Distribution):
        if law.batch_shape or law.event_shape:
            raise ValueError(f"The prior of `{name}` must be a law of one number; got {law}.")
        return law
    if not isinstance(law, AbstractLaw) or law.dim not in (None, 1):
        raise ValueError(
            f"The prior of `{name}` must be a law of one number, of `diracflow` or of "
            f"`numpyro.distributions`; got {law!r}."
        )
    return _translated(name, law.expand(1), distributions)


def _translated(name: str, law: AbstractLaw, distributions: Any) -> Any:
    number = lambda parameter: jnp.asarray(parameter).reshape(())
    if isinstance(law, Normal):
        return distributions.Normal(number(law.mean), number(law.factor))
    if isinstance(law, LogNormal):
        return distributions.LogNormal(number(law.log.mean), number(law.log.factor))
    if isinstance(law, Uniform):
        return distributions.Uniform(number(law.low), number(law.high))
    raise ValueError(
        f"As a prior of `{name}` take `Normal`, `LogNormal`, `Uniform` or a distribution of "
        f"`numpyro.distributions`; got {type(law).__name__}."
    )


def _check_range(name: str, law: Any, low: float, high: float) -> None:
    draws = np.asarray(law.sample(jr.key(1), (_TRIALS,)))
    outside = np.mean(~((draws > low if low == 0 else draws >= low) & (draws <= high)))
    if outside > 0:
        raise ValueError(
            f"{outside:.1%} of the prior of `{name}` lies outside [{low:g}, {high:g}], where the "
            "density is known. Narrow or truncate the prior, or learn the density over a wider "
            "range."
        )


def inside_bounds(
    density: AbstractTransitionDensity, params: Mapping[str, Array]
) -> tuple[Array, dict[str, Array]]:
    """Whether all parameters lie where the density is known, and the nearest ones that do."""
    tiny = jnp.finfo(jnp.result_type(float)).tiny
    nearest = {}
    for name, value in params.items():
        low, high = density.param_bounds.get(name, (-np.inf, np.inf))
        nearest[name] = jnp.clip(value, tiny if low == 0 else low, high)
    same = [nearest[name] == value for name, value in params.items()]
    return jax.tree.reduce(jnp.logical_and, same), nearest
