r"""The posterior of SDE parameters, given discretely observed paths.

The likelihood is a product of transition densities, so Hamiltonian Monte Carlo (NUTS, from NumPyro)
samples the parameters alone: there are no latent paths between observations.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from ..sde.argument_checks import checked_count, checked_key
from ..sde.laws import AbstractLaw, LogNormal, Normal, Uniform
from ..sde.parameters import check_names
from ..transition.transition_density import AbstractTransitionDensity, require_density
from .extras import extra
from .likelihood import Transitions, transitions
from .posterior import posterior_tree

if TYPE_CHECKING:
    from xarray import DataTree

_FIELDS = ("potential_energy", "energy", "accept_prob", "num_steps", "diverging")
# Number of draws used to check a prior.
_TRIALS = 1000


def infer(
    key: PRNGKeyArray,
    density: AbstractTransitionDensity,
    times: Float[ArrayLike, "*batch n+1"],
    states: Float[ArrayLike, "*batch n+1 d"],
    prior: Mapping[str, Any],
    *,
    chains: int = 4,
    draws: int = 1000,
    warmup: int = 1000,
    progress: bool = False,
) -> "DataTree":
    """Sample the posterior of the parameters of an SDE. Needs the extra `infer`.

    **Arguments:**

    - `key`: a random key.
    - `density`: a transition density with parameters.
    - `times`, `states`: as for `diracflow.log_likelihood`; independent paths along leading axes.
    - `prior`: an independent scalar law for each parameter: `diracflow.Normal`, `LogNormal`,
        `Uniform`, or a distribution of `numpyro.distributions`.
    - `chains`: number of chains, which run in one vectorised program.
    - `draws`: number of draws that each chain keeps.
    - `warmup`: number of draws that each chain discards while it adapts.
    - `progress`: if `True`, show a progress bar.

    **Returns:**

    An `xarray.DataTree` in the format of ArviZ, with the groups `posterior`, `sample_stats` and
    `observed_data`. Each parameter has R-hat and effective sample size as attributes. The tree has
    the worst of them and the number of divergences. `tree.to_netcdf(path, engine="h5netcdf")`
    writes it. Warns if R-hat exceeds 1.01 or trajectories diverged.
    """
    mcmc = extra("numpyro.infer")
    require_density(density)
    key = checked_key(key)
    for name, count in {"chains": chains, "draws": draws, "warmup": warmup}.items():
        checked_count(name, count)
    laws = checked_prior(density, prior)
    observed = transitions(density, times, states)
    _check_centre(density, observed, laws)
    sampler = mcmc.MCMC(
        _kernel(density, laws),
        num_warmup=warmup,
        num_samples=draws,
        num_chains=chains,
        chain_method="vectorized",
        progress_bar=progress,
    )
    sampler.run(key, observed, extra_fields=_FIELDS)
    return posterior_tree(sampler, density.params, times, states)


def _kernel(density: AbstractTransitionDensity, laws: Mapping[str, Any]) -> Any:
    mcmc = extra("numpyro.infer")
    return mcmc.NUTS(
        path_model(density, laws),
        # From draws of the prior: only chains with different starts can reveal poor mixing.
        init_strategy=mcmc.init_to_sample,
        # Parameters are few. For a learned density with three of them a reverse-mode gradient
        # takes three times as long.
        forward_mode_differentiation=True,
    )


def path_model(
    density: AbstractTransitionDensity, laws: Mapping[str, Any]
) -> Callable[[Transitions], None]:
    """Return the NumPyro model of observed transitions."""
    numpyro = extra("numpyro")

    def model(observed: Transitions) -> None:
        params = {name: numpyro.sample(name, law) for name, law in laws.items()}
        numpyro.factor("paths", log_posterior_term(density, observed, params))

    return model


def log_posterior_term(
    density: AbstractTransitionDensity, observed: Transitions, params: Mapping[str, Array]
) -> Float[Array, ""]:
    """Return the log-likelihood of all paths, or minus infinity outside the parameter bounds."""
    inside, nearest = _inside_bounds(density, params)
    return jnp.where(inside, jnp.sum(observed.log_prob(density, nearest)), -jnp.inf)


def checked_prior(density: AbstractTransitionDensity, prior: Mapping[str, Any]) -> dict[str, Any]:
    """Return the prior as NumPyro distributions, checked against the parameter bounds."""
    if not density.params:
        raise ValueError("This density has no parameters to infer.")
    check_names(density.params, prior)
    laws = {name: _distribution(name, prior[name]) for name in density.params}
    for name, law in laws.items():
        _check_range(name, law, *density.param_bounds.get(name, (-np.inf, np.inf)))
    return laws


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
    law = law.expand(1)
    number = lambda parameter: jnp.asarray(parameter).reshape(())
    if isinstance(law, Normal):
        return distributions.Normal(number(law.mean), number(law.factor))
    if isinstance(law, LogNormal):
        return distributions.LogNormal(number(law.log.mean), number(law.log.factor))
    if isinstance(law, Uniform):
        return distributions.Uniform(number(law.low), number(law.high))
    raise ValueError(
        f"The prior of `{name}` must be a `Normal`, `LogNormal`, `Uniform` or a distribution of "
        f"`numpyro.distributions`; got {type(law).__name__}."
    )


def _check_range(name: str, law: Any, low: float, high: float) -> None:
    draws = np.asarray(law.sample(jr.key(1), (_TRIALS,)))
    outside = np.mean(~((draws > low if low == 0 else draws >= low) & (draws <= high)))
    if outside > 0:
        raise ValueError(
            f"{outside:.1%} of the prior of `{name}` lies outside [{low:g}, {high:g}], the range "
            "of the density. Narrow or truncate the prior, or learn the density over a wider range."
        )


def _inside_bounds(
    density: AbstractTransitionDensity, params: Mapping[str, Array]
) -> tuple[Array, dict[str, Array]]:
    """Return `True` if all parameters lie within their bounds, and the nearest that do."""
    tiny = jnp.finfo(jnp.result_type(float)).tiny
    nearest = {}
    for name, value in params.items():
        low, high = density.param_bounds.get(name, (-np.inf, np.inf))
        nearest[name] = jnp.clip(value, tiny if low == 0 else low, high)
    same = [nearest[name] == value for name, value in params.items()]
    return jax.tree.reduce(jnp.logical_and, same), nearest


def _check_centre(
    density: AbstractTransitionDensity, observed: Transitions, laws: Mapping[str, Any]
) -> None:
    keys = jr.split(jr.key(0), len(laws))
    centre = {
        name: jnp.median(law.sample(key, (_TRIALS,)))
        for key, (name, law) in zip(keys, laws.items(), strict=True)
    }
    value = log_posterior_term(density, observed, centre)
    if not np.isfinite(value):
        shown = ", ".join(f"{name}={float(number):.4g}" for name, number in centre.items())
        raise ValueError(
            f"The log-likelihood is {float(value)} at the centre of the prior ({shown}). Check "
            "that every state lies where the process can be, and the scale of the prior."
        )
