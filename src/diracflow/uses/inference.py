r"""The posterior of SDE parameters, given discretely observed paths.

The likelihood is a product of transition densities, so Hamiltonian Monte Carlo (NUTS, from NumPyro)
samples the parameters alone: there are no latent paths between observations.
"""

import importlib
import warnings
from collections.abc import Callable, Mapping
from importlib.metadata import version
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
from .likelihood import Transitions, transitions
from .observed import in_unit

if TYPE_CHECKING:
    from xarray import DataTree


# Number of draws used to check a prior.
_TRIALS = 1000
# Chains with a larger split R-hat have usually not mixed (Vehtari et al. 2021).
_R_HAT = 1.01
# NumPyro's names of the recorded statistics, and ArviZ's.
_STATISTICS = {
    "energy": "energy",
    "accept_prob": "acceptance_rate",
    "num_steps": "n_steps",
    "diverging": "diverging",
}


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
    unit: str | None = None,
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
    - `unit`: the unit of the SDE's time, if `times` are dates, as for `diracflow.log_likelihood`.

    **Returns:**

    An `xarray.DataTree` in the format of ArviZ, with the groups `posterior`, `sample_stats` and
    `observed_data`. Each parameter has R-hat and effective sample size as attributes. The tree has
    the worst of them and the number of divergences. `tree.to_netcdf(path, engine="h5netcdf")`
    writes it. Warns if R-hat exceeds 1.01 or trajectories diverged.
    """
    mcmc, key = extra("numpyro.infer"), checked_key(key)
    require_density(density)
    for name, count in {"chains": chains, "draws": draws, "warmup": warmup}.items():
        checked_count(name, count)
    laws = checked_prior(density, prior)
    times, states = in_unit(times, states, unit)
    observed = transitions(density, times, states)
    _check_centre(density, observed, laws)
    kernel = mcmc.NUTS(
        path_model(density, laws),
        # From draws of the prior: only chains with different starts can reveal poor mixing.
        init_strategy=mcmc.init_to_sample,
        # Parameters are few. For a learned density with three of them a reverse-mode gradient
        # takes three times as long.
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
    sampler.run(key, observed, extra_fields=("potential_energy", *_STATISTICS))
    return _posterior_tree(sampler, density.params, times, states)


def path_model(
    density: AbstractTransitionDensity, laws: Mapping[str, Any]
) -> Callable[[Transitions], None]:
    """Return the NumPyro model of observed transitions."""
    numpyro = extra("numpyro")

    def model(observed: Transitions) -> None:
        params = {name: numpyro.sample(name, law) for name, law in laws.items()}
        numpyro.factor("paths", log_posterior_term(density, observed, params))

    return model


def extra(package: str, group: str = "infer") -> Any:
    """Import and return a module of an extra, or raise an error that says how to install it."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package.split(".")[0]:
            raise
        raise ModuleNotFoundError(
            f"This needs the package `{error.name}`. Install it with "
            f"`pip install 'diracflow[{group}]'`.",
            name=error.name,
        ) from error


def log_posterior_term(
    density: AbstractTransitionDensity, observed: Transitions, params: Mapping[str, Array]
) -> Float[Array, ""]:
    """Return the log-likelihood of all paths, or minus infinity outside the parameter bounds."""
    tiny = jnp.finfo(jnp.result_type(float)).tiny
    nearest = {}
    for name, value in params.items():
        low, high = density.param_bounds.get(name, (-np.inf, np.inf))
        nearest[name] = jnp.clip(value, tiny if low == 0 else low, high)
    inside = [nearest[name] == value for name, value in params.items()]
    value = jnp.sum(observed.log_prob(density, nearest))
    return jnp.where(jax.tree.reduce(jnp.logical_and, inside), value, -jnp.inf)


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


def _posterior_tree(
    sampler: Any, names: tuple[str, ...], times: ArrayLike, states: ArrayLike
) -> "DataTree":
    """Return the groups `posterior`, `sample_stats` and `observed_data` of a finished run."""
    xarray = extra("xarray")
    samples = sampler.get_samples(group_by_chain=True)
    fields = {n: np.asarray(f) for n, f in sampler.get_extra_fields(group_by_chain=True).items()}
    draws = {name: np.asarray(samples[name]) for name in names}
    found = {name: convergence(values) for name, values in draws.items()}
    stats = {ours: fields[theirs] for theirs, ours in _STATISTICS.items()}
    stats["lp"] = -fields["potential_energy"]

    def dataset(variables: dict[str, np.ndarray], attributes: dict[str, dict]) -> Any:
        chains, count = fields["diverging"].shape
        data = {n: (("chain", "draw"), v, attributes.get(n)) for n, v in variables.items()}
        coords = {"chain": np.arange(chains), "draw": np.arange(count)}
        library = {"inference_library": "numpyro", "inference_library_version": version("numpyro")}
        return xarray.Dataset(data, coords, library)

    t, x = np.asarray(times), np.asarray(states)
    paths = [f"path_{axis}" for axis in range(x.ndim - 2)]
    own = paths[len(paths) - (t.ndim - 1) :] if t.ndim > 1 else []
    observed = {"times": ((*own, "time"), t), "states": ((*paths, "time", "component"), x)}
    groups = {"posterior": dataset(draws, found), "sample_stats": dataset(stats, {})}
    tree = xarray.DataTree.from_dict(groups | {"observed_data": xarray.Dataset(observed)})
    tree.attrs.update(
        r_hat=float(np.max([row["r_hat"] for row in found.values()])),
        ess=float(np.min([row["ess"] for row in found.values()])),
        divergences=int(fields["diverging"].sum()),
        **{f"{package}_version": version(package) for package in ("diracflow", "jax", "numpyro")},
    )
    warn_of(tree.attrs)
    return tree


def convergence(draws: np.ndarray) -> dict[str, float]:
    """Return split R-hat and effective sample size of `draws`, of shape `(chains, draws)`."""
    diagnostics = extra("numpyro.diagnostics")
    if draws.shape[1] < 4:  # each half of a chain needs two draws
        return {"r_hat": np.nan, "ess": np.nan}
    return {
        "r_hat": float(diagnostics.split_gelman_rubin(draws)),
        "ess": float(diagnostics.effective_sample_size(draws)),
    }


def warn_of(summary: dict[str, Any]) -> None:
    """Warn if chains have not mixed or trajectories diverged."""
    if not summary["r_hat"] <= _R_HAT:
        warnings.warn(
            f"Chains have not mixed: R-hat is {summary['r_hat']:.3f}, above {_R_HAT}. Use more "
            "`warmup` and `draws`, or a prior that excludes parameters with equal likelihood.",
            stacklevel=4,
        )
    if summary["divergences"]:
        warnings.warn(
            f"{summary['divergences']} trajectories diverged; the posterior may be biased where "
            "its scale changes abruptly. Narrow the prior or use another parametrisation.",
            stacklevel=4,
        )
