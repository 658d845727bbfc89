"""The posterior of SDE parameters given noisy or partial observations."""

import dataclasses
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from ..hidden.evidence import HiddenProcess, Run
from ..hidden.guided_jumps import Observe
from ..hidden.particle_filter import check_model, initial_law, schedule
from ..sde.argument_checks import checked_count, checked_number
from ..sde.laws import AbstractLaw
from ..transition.transition_density import AbstractTransitionDensity
from ..uses.extras import extra
from ..uses.underlying_sde import began_at
from .chain_file import Records, run_chains
from .marginal_chains import MarginalSampler
from .posterior_tree import coordinates, observed_paths, posterior_tree
from .priors import PosteriorTask, prior_centre, shown

if TYPE_CHECKING:
    from xarray import DataTree

# Draws that are compared with predicted paths.
_PREDICTED = 400
# A component is uninformed if its variance given the observations is more than this share of the
# variance without them, and the squared shift of its mean less than the rest of it.
_UNINFORMED = 0.9
# Share of drawn states outside the start law of the density from which on it is told.
_OUTSIDE = 0.01


def hidden_posterior(
    task: PosteriorTask,
    *,
    observe: Observe,
    particles: int = 100,
    initial: AbstractLaw | Float[ArrayLike, "m d"] | None = None,
    start: float | None = None,
    correlation: float | None = None,
) -> "DataTree":
    """Sample the posterior given observations of one path; arguments are those of `infer`."""
    if correlation is not None and not 0 <= checked_number("correlation", correlation) < 1:
        raise ValueError(f"`correlation` must be at least 0 and below 1; got {correlation:g}.")
    key, density, data, laws, run = task
    particles = checked_count("particles", particles)
    plan = schedule(density, *data, began_at(density, start, "start"))
    if not np.any(plan.observed):
        raise ValueError("All observations are missing: the posterior is the prior.")
    first = initial_law(density, initial)
    some = first.sample(jr.key(0), (3,)) if isinstance(first, AbstractLaw) else first
    check_model(density, observe, plan, some, prior_centre(laws))
    process = HiddenProcess(density, observe, plan, first, particles)
    first_key, run_key = jr.split(key)
    names, priors = tuple(laws), tuple(laws.values())
    sampler = MarginalSampler(process, names, priors, correlation, run.warmup)
    chains = sampler.first(first_key, run.chains)
    points = chains.points
    _require_evidence(points.run, process, sampler.params(points.position))
    identity = {
        "the evidence at the start of the chains": np.asarray(points.run.total),
        **task.identity(),
        "particles": particles,
        "correlation": correlation,
        "start": start,
    }
    found = run_chains(sampler, run_key, chains, run, identity)
    return _tree(process, names, data, found)


def _require_evidence(run: Run, process: HiddenProcess, params: Mapping[str, Array]) -> None:
    """Raise if chains would start where no particle explains the observations."""
    values = np.asarray(run.log_evidences)
    bad = ~np.isfinite(values)
    if not bad.any():
        return
    chain = int(np.argmax(bad.any(axis=1)))
    index = int(np.argmax(bad[chain]))
    where = f"observation {index} at t={float(process.plan.times[index]):g}"
    tried = shown({name: value[chain] for name, value in params.items()})
    if np.isnan(values[chain, index]):
        raise ValueError(
            f"`observe` or the density returned NaN at {where} with {tried}. `observe` must return "
            "finite numbers or -inf. Mark a missing observation by NaN alone."
        )
    raise ValueError(
        f"No particle explains {where}, with the likeliest of several draws of the prior ({tried})."
        " Use more `particles`, an `observe` with heavier tails, or a prior and an `initial` law "
        "nearer to the observations."
    )


def _tree(
    process: HiddenProcess,
    names: tuple[str, ...],
    data: tuple[ArrayLike, ArrayLike],
    found: Records,
) -> "DataTree":
    xarray = extra("xarray")
    draws, path = {name: found.pop(name) for name in names}, found.pop("path")
    undefined = found.pop("undefined")
    outside = _outside(process.density, path, draws)
    seen = np.asarray(data[1])
    tree = posterior_tree(
        draws,
        found,
        observed_paths(data[0], seen.reshape(len(seen), -1)),
        "diracflow",
        outside=outside,
    )
    labels = ("chain", "draw", "time", "component")
    where = {**coordinates(path), "time": np.asarray(process.plan.times)}
    tree["hidden"] = xarray.DataTree(xarray.Dataset({"states": (labels, path)}, where))
    _warn(process, draws, path, outside, float(undefined.mean()))
    return tree


def _outside(density: AbstractTransitionDensity, path: np.ndarray, draws: Records) -> float:
    """Return the share of drawn states that lie outside the start law of the density."""
    paths, params = _some(path, draws)
    time = density.start_time_bounds[0] if density.start_time is None else None
    columns = {name: values[:, None] for name, values in params.items()}
    return float(np.mean(np.asarray(density.outside(paths, columns, time))))


def _some(path: np.ndarray, draws: Records) -> tuple[np.ndarray, Records]:
    """Return some draws of the path and of the parameters, from all chains."""
    paths = path.reshape(-1, *path.shape[2:])
    rows = np.unique(np.linspace(0, len(paths) - 1, _PREDICTED).astype(int))
    return paths[rows], {name: values.reshape(-1)[rows] for name, values in draws.items()}


def _warn(
    process: HiddenProcess, draws: Records, path: np.ndarray, outside: float, undefined: float
) -> None:
    components = [str(i + 1) for i in np.flatnonzero(uninformed(process, draws, path))]
    texts = {
        f"{outside:.1%} of the drawn states lie outside the law of starts that the density was "
        "learned for. Learn it with wider `starts`.": outside > _OUTSIDE,
        f"The evidence was NaN for {undefined:.2%} of the proposals, which were rejected. "
        "`observe` must return finite numbers or -inf.": undefined > 0,
        f"The observations say almost nothing about component {', '.join(components)} of the "
        "state: its law given the observations is that without them.": bool(components),
    }
    for text, needed in texts.items():
        if needed:
            warnings.warn(text, stacklevel=5)


def uninformed(process: HiddenProcess, draws: Records, path: np.ndarray) -> np.ndarray:
    """Return `True` for each component whose law the observations do not change.

    Drawn paths are compared with paths that are simulated with the same parameters and without
    observations. Variances and squared shifts of the mean are averaged over time.
    """
    paths, params = _some(path, draws)
    blind = eqx.tree_at(lambda p: p.plan.observed, process, replace_fn=jnp.zeros_like)
    alone = dataclasses.replace(blind, particles=1)
    run = alone.run(alone.noise(jr.key(0), len(paths)), jax.tree.map(jnp.asarray, params))
    predicted = np.asarray(run.path)
    spread = predicted.var(axis=0).mean(axis=0)
    shift = ((paths.mean(axis=0) - predicted.mean(axis=0)) ** 2).mean(axis=0)
    kept = paths.var(axis=0).mean(axis=0) > _UNINFORMED * spread
    return kept & (shift < (1 - _UNINFORMED) * spread)
