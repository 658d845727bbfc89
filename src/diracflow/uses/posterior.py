"""Posterior draws as a labelled tree, with convergence diagnostics."""

import warnings
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import ArrayLike

from .extras import extra

if TYPE_CHECKING:
    from xarray import DataTree

# Chains with a larger split R-hat have usually not mixed (Vehtari et al. 2021).
_R_HAT = 1.01
# NumPyro's names of the recorded statistics, and ArviZ's.
_STATISTICS = {
    "energy": "energy",
    "accept_prob": "acceptance_rate",
    "num_steps": "n_steps",
    "diverging": "diverging",
}


def posterior_tree(
    sampler: Any, names: tuple[str, ...], times: ArrayLike, states: ArrayLike
) -> "DataTree":
    """Return the groups `posterior`, `sample_stats` and `observed_data` of a finished run."""
    samples = sampler.get_samples(group_by_chain=True)
    fields = {n: np.asarray(f) for n, f in sampler.get_extra_fields(group_by_chain=True).items()}
    draws = {name: np.asarray(samples[name]) for name in names}
    stats = {ours: fields[theirs] for theirs, ours in _STATISTICS.items()}
    groups = {
        "posterior": _chains(draws, {name: convergence(d) for name, d in draws.items()}),
        "sample_stats": _chains(stats | {"lp": -fields["potential_energy"]}, {}),
        "observed_data": _observed(times, states),
    }
    tree = extra("xarray").DataTree.from_dict(groups)
    tree.attrs.update(_summary(groups["posterior"], int(fields["diverging"].sum())))
    warn_of(tree.attrs)
    return tree


def _chains(variables: dict[str, np.ndarray], attributes: dict[str, dict]) -> Any:
    chains, draws = next(iter(variables.values())).shape
    data = {
        name: (("chain", "draw"), values, attributes.get(name, {}))
        for name, values in variables.items()
    }
    coords = {"chain": np.arange(chains), "draw": np.arange(draws)}
    libraries = {"inference_library": "numpyro", "inference_library_version": version("numpyro")}
    return extra("xarray").Dataset(data, coords, libraries)


def _observed(times: ArrayLike, states: ArrayLike) -> Any:
    t, x = np.asarray(times), np.asarray(states)
    paths = [f"path_{axis}" for axis in range(x.ndim - 2)]
    own = paths[len(paths) - (t.ndim - 1) :] if t.ndim > 1 else []
    data = {"times": ((*own, "time"), t), "states": ((*paths, "time", "component"), x)}
    return extra("xarray").Dataset(data)


def convergence(draws: np.ndarray) -> dict[str, float]:
    """Return split R-hat and effective sample size of `draws`, of shape `(chains, draws)`."""
    diagnostics = extra("numpyro.diagnostics")
    if draws.shape[1] < 4:  # each half of a chain needs two draws
        return {"r_hat": np.nan, "ess": np.nan}
    return {
        "r_hat": float(diagnostics.split_gelman_rubin(draws)),
        "ess": float(diagnostics.effective_sample_size(draws)),
    }


def _summary(posterior: Any, divergences: int) -> dict[str, Any]:
    attributes = [variable.attrs for variable in posterior.data_vars.values()]
    return {
        "r_hat": float(np.max([a["r_hat"] for a in attributes])),
        "ess": float(np.min([a["ess"] for a in attributes])),
        "divergences": divergences,
        **{f"{package}_version": version(package) for package in ("diracflow", "jax", "numpyro")},
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
