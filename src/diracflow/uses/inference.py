r"""The posterior of SDE parameters, given discretely observed paths.

The likelihood is a product of transition densities, so Hamiltonian Monte Carlo (NUTS, from NumPyro)
moves in the parameters alone: there are no latent paths between observations.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from ..sde.argument_checks import checked_count, checked_key
from ..transition.transition_density import AbstractTransitionDensity, require_density
from .extras import extra
from .likelihood import Transitions, transitions
from .posterior import posterior_tree
from .priors import checked_prior, inside_bounds, prior_draws

if TYPE_CHECKING:
    from xarray import DataTree

_FIELDS = ("potential_energy", "energy", "accept_prob", "num_steps", "diverging")


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
    """Draw from the posterior of the parameters of an SDE.

    Needs the extra `infer` (NumPyro, xarray).

    **Arguments:**

    - `key`: a random key.
    - `density`: a transition density with parameters.
    - `times`, `states`: as for `diracflow.log_likelihood`; independent paths along leading axes.
    - `prior`: a law of one number for each parameter: `diracflow.Normal`, `LogNormal`, `Uniform`,
        or a distribution of `numpyro.distributions`. Independent of each other.
    - `chains`, `draws`, `warmup`: chains side by side, what each keeps, and what each discards
        while it adapts.
    - `progress`: whether to show a progress bar.

    **Returns:**

    An `xarray.DataTree` as ArviZ reads it, with the groups `posterior`, `sample_stats` and
    `observed_data`; R-hat and effective sample size are attributes of each parameter, their worst
    and the number of divergences of the whole. `tree.to_netcdf(path, engine="h5netcdf")` writes it.
    Warns where R-hat exceeds 1.01 or trajectories diverged.
    """
    mcmc = extra("numpyro.infer")
    require_density(density)
    key = checked_key(key)
    for name, count in {"chains": chains, "draws": draws, "warmup": warmup}.items():
        checked_count(name, count)
    laws = checked_prior(density, prior)
    observed = transitions(density, times, states)
    _check_centre(density, observed, laws)
    # Chains start from draws of the prior: only chains that began apart can disagree.
    kernel = mcmc.NUTS(
        path_model(density, laws),
        init_strategy=mcmc.init_to_sample,
        # Parameters are few. On a learned density with three of them a backward gradient takes
        # three times as long.
        forward_mode_differentiation=True,
    )
    sampler = mcmc.MCMC(
        kernel,
        num_warmup=warmup,
        num_samples=draws,
        num_chains=chains,
        chain_method="vectorized",
        progress_bar=progress,
    )
    sampler.run(key, observed, extra_fields=_FIELDS)
    return posterior_tree(sampler, density.params, times, states)


def path_model(
    density: AbstractTransitionDensity, laws: Mapping[str, Any]
) -> Callable[[Transitions], None]:
    """The NumPyro model of observed transitions."""
    numpyro = extra("numpyro")

    def model(observed: Transitions) -> None:
        params = {name: numpyro.sample(name, law) for name, law in laws.items()}
        numpyro.factor("paths", log_posterior_term(density, observed, params))

    return model


def log_posterior_term(
    density: AbstractTransitionDensity, observed: Transitions, params: Mapping[str, Array]
) -> Float[Array, ""]:
    """Log-likelihood of all paths; minus infinity where the density is not known."""
    inside, nearest = inside_bounds(density, params)
    return jnp.where(inside, jnp.sum(observed.log_prob(density, nearest)), -jnp.inf)


def _check_centre(
    density: AbstractTransitionDensity, observed: Transitions, laws: Mapping[str, Any]
) -> None:
    centre = {name: jnp.median(draws) for name, draws in prior_draws(laws).items()}
    value = log_posterior_term(density, observed, centre)
    if not np.isfinite(value):
        shown = ", ".join(f"{name}={float(number):.4g}" for name, number in centre.items())
        raise ValueError(
            f"The log-likelihood is {float(value)} at the centre of the prior ({shown}). Check "
            "that every state lies where the process can be, and the scale of the prior."
        )
