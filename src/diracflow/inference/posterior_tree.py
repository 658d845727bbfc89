"""Posterior draws as a tree of labelled arrays, in the format of ArviZ."""

import warnings
from collections.abc import Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import ArrayLike

from ..uses.extras import extra

if TYPE_CHECKING:
    from xarray import DataTree

# Chains with a larger split R-hat have usually not mixed (Vehtari et al. 2021).
_R_HAT = 1.01
_DRAWS = ("chain", "draw")
Draws = Mapping[str, np.ndarray]  # of shape (chains, draws, ...)


def posterior_tree(
    draws: Draws,
    statistics: Draws,
    observed: Any,
    library: str,
    **attributes: float,
) -> "DataTree":
    """Return the groups `posterior`, `sample_stats` and `observed_data`.

    `statistics` are recorded with each draw; `library` is the package that made the draws.
    """
    xarray = extra("xarray")
    found = {name: convergence(values) for name, values in draws.items()}
    origin = {"inference_library": library, "inference_library_version": version(library)}

    def dataset(variables: Draws, notes: Mapping[str, dict]) -> Any:
        data = {name: (_DRAWS, values, notes.get(name)) for name, values in variables.items()}
        return xarray.Dataset(data, coordinates(next(iter(variables.values()))), origin)

    groups = {"posterior": dataset(draws, found), "sample_stats": dataset(statistics, {})}
    tree = xarray.DataTree.from_dict(groups | {"observed_data": observed})
    tree.attrs.update(
        r_hat=float(np.max([row["r_hat"] for row in found.values()])),
        ess=float(np.min([row["ess"] for row in found.values()])),
        **attributes,
        **{f"{package}_version": version(package) for package in ("diracflow", "jax", "numpyro")},
    )
    return tree


def coordinates(draws: np.ndarray) -> dict[str, np.ndarray]:
    """Return the coordinates of draws of shape `(chains, draws, ...)`."""
    return {name: np.arange(size) for name, size in zip(_DRAWS, draws.shape, strict=False)}


def observed_paths(times: ArrayLike, states: ArrayLike) -> Any:
    """Return the dataset of observed paths; leading axes are independent paths."""
    t, x = np.asarray(times), np.asarray(states)
    paths = [f"path_{axis}" for axis in range(x.ndim - 2)]
    own = paths[len(paths) - (t.ndim - 1) :] if t.ndim > 1 else []
    variables = {"times": ((*own, "time"), t), "states": ((*paths, "time", "component"), x)}
    return extra("xarray").Dataset(variables)


def convergence(draws: np.ndarray) -> dict[str, float]:
    """Return split R-hat and effective sample size of `draws`, of shape `(chains, draws)`."""
    diagnostics = extra("numpyro.diagnostics")
    if draws.shape[1] < 4:  # each half of a chain needs two draws
        return {"r_hat": np.nan, "ess": np.nan}
    return {
        "r_hat": float(diagnostics.split_gelman_rubin(draws)),
        "ess": float(diagnostics.effective_sample_size(draws)),
    }


def warn_of(summary: Mapping[Any, Any]) -> None:
    """Warn if chains have not mixed or trajectories diverged."""
    if not summary["r_hat"] <= _R_HAT:
        warnings.warn(
            f"Chains have not mixed: R-hat is {summary['r_hat']:.3f}, above {_R_HAT}. Use more "
            "`warmup` and `draws`, or a prior that excludes parameters with equal likelihood.",
            stacklevel=3,
        )
    if summary.get("divergences"):
        warnings.warn(
            f"{summary['divergences']} trajectories diverged; the posterior may be biased where "
            "its scale changes abruptly. Narrow the prior or use another parametrisation.",
            stacklevel=3,
        )
