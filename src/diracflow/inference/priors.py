"""Prior laws of parameters, as distributions of NumPyro, and the task of a sampler."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from ..sde.laws import AbstractLaw, LogNormal, Normal, Uniform
from ..sde.parameters import check_names
from ..transition.transition_density import AbstractTransitionDensity
from ..uses.extras import extra
from .chain_file import RunOptions

# Number of draws used to check a prior.
_TRIALS = 1000


def checked_prior(density: AbstractTransitionDensity, prior: Mapping[str, Any]) -> dict[str, Any]:
    """Return the prior as NumPyro distributions, checked against the parameter bounds."""
    if not density.params:
        raise ValueError("This density has no parameters to infer.")
    check_names(density.params, prior)
    laws = {name: _distribution(name, prior[name]) for name in density.params}
    for name, law in laws.items():
        low, high = density.param_bounds.get(name, (-np.inf, np.inf))
        draws = np.asarray(law.sample(jr.key(1), (_TRIALS,)))
        outside = np.mean(~((draws > low if low == 0 else draws >= low) & (draws <= high)))
        if outside > 0:
            raise ValueError(
                f"{outside:.1%} of the prior of `{name}` lies outside [{low:g}, {high:g}], the "
                "range of the density. Narrow or truncate the prior, or learn the density over a "
                "wider range."
            )
    return laws


def _distribution(name: str, law: Any) -> Any:
    laws = extra("numpyro.distributions")
    if isinstance(law, laws.Distribution) and not (law.batch_shape or law.event_shape):
        return law
    if isinstance(law, AbstractLaw) and law.dim in (None, 1):
        one = law.expand(1)
        number = lambda parameter: jnp.asarray(parameter).reshape(())
        if isinstance(one, Normal):
            return laws.Normal(number(one.mean), number(one.factor))
        if isinstance(one, LogNormal):
            return laws.LogNormal(number(one.log.mean), number(one.log.factor))
        if isinstance(one, Uniform):
            return laws.Uniform(number(one.low), number(one.high))
    raise ValueError(
        f"The prior of `{name}` must be a law of one number: a `Normal`, `LogNormal`, `Uniform` or "
        f"a distribution of `numpyro.distributions`; got {law!r}."
    )


def prior_centre(laws: Mapping[str, Any]) -> dict[str, Float[Array, ""]]:
    """Return the medians of draws of the prior."""
    keys = jr.split(jr.key(0), len(laws))
    pairs = zip(keys, laws.items(), strict=True)
    return {name: jnp.median(law.sample(key, (_TRIALS,))) for key, (name, law) in pairs}


class PosteriorTask(NamedTuple):
    """The checked arguments of `infer` for exact and for noisy observations."""

    key: PRNGKeyArray
    density: AbstractTransitionDensity
    data: tuple[ArrayLike, ArrayLike]  # times and states, or times and observations
    laws: Mapping[str, Any]
    run: RunOptions

    def identity(self) -> dict[str, Any]:
        """Return the numbers that distinguish a run of chains from others."""
        times, states = map(np.asarray, self.data)
        key, pairs = np.asarray(jr.key_data(self.key)).ravel(), self.laws.items()
        few = {name: np.asarray(law.sample(jr.key(2), (3,)), float) for name, law in pairs}
        return {
            "key": [str(jr.key_impl(self.key)), *key.tolist()],
            "times": times.astype(float),
            # NaN marks missing observations, and is not equal to itself.
            "states": np.nan_to_num(states.astype(float), nan=np.inf),
            **{f"prior of {name}": draws for name, draws in few.items()},
            "chains": self.run.chains,
            "warmup": self.run.warmup,
            "precision": str(jnp.result_type(float)),
        }


def shown(params: Mapping[str, Any]) -> str:
    """Return the values of parameters as text."""
    return ", ".join(f"{name}={float(value):.4g}" for name, value in params.items())
