r"""The posterior of SDE parameters, given discretely observed paths.

If all components are seen without noise, the likelihood is a product of transition densities, so
Hamiltonian Monte Carlo (NUTS, from NumPyro) samples the parameters alone: there are no latent paths
between observations. Otherwise a particle filter estimates the evidence of the observations, see
`hidden_posterior`.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from ..hidden.guided_jumps import Observe
from ..sde.argument_checks import checked_count, checked_key
from ..sde.laws import AbstractLaw
from ..transition.transition_density import AbstractTransitionDensity, require_density
from ..uses.extras import extra
from ..uses.observed import in_unit
from .chain_file import RunOptions, run_chains
from .hidden_posterior import hidden_posterior
from .likelihood import Transitions, transitions
from .posterior_tree import observed_paths, posterior_tree, warn_of
from .priors import PosteriorTask, checked_prior, prior_centre, shown

if TYPE_CHECKING:
    import os

    from xarray import DataTree


# NumPyro's names of the recorded statistics, and ArviZ's.
_STATISTICS = {
    "energy": "energy",
    "accept_prob": "acceptance_rate",
    "num_steps": "n_steps",
    "diverging": "diverging",
}


class HiddenState(TypedDict, total=False):
    """Keyword arguments of `infer` for noisy or partial observations."""

    observe: Observe
    particles: int
    initial: AbstractLaw | Float[ArrayLike, "m d"]
    start: float
    correlation: float | None


class MoreOptions(HiddenState, total=False):
    """Further keyword arguments of `infer`."""

    checkpoint: "str | os.PathLike"


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
    **more: Unpack[MoreOptions],
) -> "DataTree":
    r"""Sample the posterior of the parameters of an SDE. Needs the extra `infer`.

    **Arguments:**

    - `key`: a random key.
    - `density`: a transition density with parameters.
    - `times`, `states`: as for `diracflow.log_likelihood`; independent paths along leading axes.
        With `observe`, the times and observations of one path, as for `diracflow.filter`.
    - `prior`: an independent scalar law for each parameter: `diracflow.Normal`, `LogNormal`,
        `Uniform`, or a distribution of `numpyro.distributions`.
    - `chains`: number of chains, which run in one vectorised program.
    - `draws`: number of draws that each chain keeps.
    - `warmup`: number of draws that each chain discards while it adapts.
    - `progress`: if `True`, show a progress bar.
    - `unit`: the unit of the SDE's time, if `times` are dates, as for `diracflow.log_likelihood`.
    - `observe`: the function $(x, y) \mapsto \log p(y | x)$ of one state and one observation, if
        states are seen with noise or in part.
    - `particles`: number of particles of each filter; 100 by default.
    - `initial`, `start`: as for `diracflow.filter`.
    - `correlation`: of the noise of successive filters, at least 0 and below 1; by default the
        warm-up finds one. It changes how fast chains mix, not the posterior.
    - `checkpoint`: a directory. The chains are stored there from time to time and if the run is
        interrupted; the same call resumes, bit for bit, and more `draws` continue a finished run.

    **Returns:**

    An `xarray.DataTree` in the format of ArviZ, with the groups `posterior`, `sample_stats` and
    `observed_data`. Each parameter has R-hat and effective sample size as attributes. The tree has
    the worst of them and the number of divergences. `tree.to_netcdf(path, engine="h5netcdf")`
    writes it. With `observe`, there is also the group `hidden` with a draw of the state at all
    times for each draw of the parameters. Warns if R-hat exceeds 1.01, if trajectories diverged,
    or if the observations say nothing about a component of the state.
    """
    extra("numpyro.infer")
    key = checked_key(key)
    require_density(density)
    for name, count in {"chains": chains, "draws": draws, "warmup": warmup}.items():
        checked_count(name, count)
    laws = checked_prior(density, prior)
    times, states = in_unit(times, states, unit)
    run = RunOptions(chains, warmup, draws, more.pop("checkpoint", None), progress)
    task = PosteriorTask(key, density, (times, states), laws, run)
    tree = _sampled(task, cast(HiddenState, more))
    warn_of({str(name): value for name, value in tree.attrs.items()})
    return tree


def _sampled(task: PosteriorTask, hidden: HiddenState) -> "DataTree":
    """Return the posterior given states, or given noisy observations of them."""
    if not hidden:
        return _path_posterior(task)
    if "observe" not in hidden:
        names = ", ".join(f"`{name}`" for name in hidden)
        raise ValueError(
            f"{names}: only for noisy or partial observations; pass `observe`, the function "
            "(x, y) -> log p(y | x), as well."
        )
    return hidden_posterior(task, **hidden)


class _HamiltonianSampler(eqx.Module):
    """NUTS on the parameters, in several chains at once."""

    kernel: Any = eqx.field(static=True)
    observed: Transitions

    def step(self, key: PRNGKeyArray, index: Array, state: Any) -> tuple[Any, dict[str, Array]]:
        """Return the state after one iteration, and what is recorded; keys are in the state."""
        after = self.kernel.sample(state, (self.observed,), {})
        params = jax.vmap(self.kernel.postprocess_fn((self.observed,), {}))(after.z)
        statistics = {ours: getattr(after, theirs) for theirs, ours in _STATISTICS.items()}
        return after, {**params, **statistics, "lp": -after.potential_energy}


def _path_posterior(task: PosteriorTask) -> "DataTree":
    """Sample the posterior given states without noise."""
    key, density, data, laws, run = task
    observed = transitions(density, *data)
    value = _checked_centre(density, observed, laws)
    mcmc = extra("numpyro.infer")
    kernel = mcmc.NUTS(
        path_model(density, laws),
        # From draws of the prior: only chains with different starts can reveal poor mixing.
        init_strategy=mcmc.init_to_sample,
        # Parameters are few. For a learned density with three of them a reverse-mode gradient
        # takes three times as long.
        forward_mode_differentiation=True,
    )
    keys = jr.key_data(jr.split(key, run.chains))
    state = kernel.init(keys, run.warmup, None, (observed,), {})
    identity = {"centre": value, **task.identity()}
    found = run_chains(_HamiltonianSampler(kernel, observed), key, state, run, identity)
    return posterior_tree(
        {name: found.pop(name) for name in density.params},
        found,
        observed_paths(*data),
        "numpyro",
        divergences=int(found["diverging"].sum()),
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
    tiny = jnp.finfo(jnp.result_type(float)).tiny
    nearest = {}
    for name, value in params.items():
        low, high = density.param_bounds.get(name, (-np.inf, np.inf))
        nearest[name] = jnp.clip(value, tiny if low == 0 else low, high)
    inside = [nearest[name] == value for name, value in params.items()]
    value = jnp.sum(observed.log_prob(density, nearest))
    return jnp.where(jax.tree.reduce(jnp.logical_and, inside), value, -jnp.inf)


def _checked_centre(
    density: AbstractTransitionDensity, observed: Transitions, laws: Mapping[str, Any]
) -> float:
    """Return the log-likelihood at the centre of the prior; raise if it is not finite."""
    centre = prior_centre(laws)
    value = log_posterior_term(density, observed, centre)
    if not np.isfinite(value):
        raise ValueError(
            f"The log-likelihood is {float(value)} at the centre of the prior ({shown(centre)}). "
            "Check that every state lies where the process can be, and the scale of the prior."
        )
    return float(value)
