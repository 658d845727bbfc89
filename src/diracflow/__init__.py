"""diracflow: transition densities of diffusion processes, learned from the SDE alone.

The rooms, in the order of the computation; each imports only from those above it:

- `storage`: files that are written whole and read with suspicion, and locks
- `problem`: what is solved: the SDE and its domain, laws of the start, built-in models with exact
    densities, the Fokker--Planck operator
- `source`: the Gaussian the flow starts from: Euler step, closure with the ensemble's width,
    moment closure
- `flow`: how the density is represented: conditioners, layers, flow, ansatz (source + flow)
- `galerkin`: how parameters move: collocation points, assembly, regularised solve, velocity
- `training`: the time loop, its settings, progress and statuses
- `checkpoint`: a training kept in a directory, to go on from there
- `certify`: what can be said of its error: the residual, and a bound made from it
- `density`: the trained artefact: `log_prob`, `sample`, `score`; saving and loading
- `learning`: `learn`
- `uses`: Green's identity, bridges between two points, likelihood, estimation and inference of
    parameters, particle filter
- `evaluate`: error measures against exact densities, references where there are none: spectral
    grids, Kalman filter, marginals of Heston's model
- `sweep`: many trainings from one file, each a process of its own
- `view`: figures
- `explore`: a local page on which one looks at a density
- `cli`: the command line
"""

import importlib
from typing import Any

# Imported on first use: `diracflow --help` must not wait for JAX.
_PUBLIC = {
    "SDE": ".problem.sde",
    "Real": ".problem.domains",
    "Positive": ".problem.domains",
    "Interval": ".problem.domains",
    "Normal": ".problem.laws",
    "Uniform": ".problem.laws",
    "LogNormal": ".problem.laws",
    "Product": ".problem.laws",
    "Mixture": ".problem.mixture",
    "BoundaryWarning": ".problem.boundaries",
    "log_density_rate": ".problem.fokker_planck",
    "AbstractTransitionDensity": ".problem.transition",
    "query_progress": ".problem.query_progress",
    "ExactOrnsteinUhlenbeck": ".problem.families",
    "ExactGeometricBrownian": ".problem.families",
    "ExactCIR": ".problem.square_root",
    "ClosureSource": ".source.closure",
    "MomentSource": ".source.moments",
    "EulerSource": ".source.euler",
    "SourceDensity": ".source.transition",
    "Settings": ".training.settings",
    "Status": ".training.status",
    "CheckpointError": ".checkpoint.errors",
    "CheckpointWarning": ".checkpoint.errors",
    "TrainingTerminated": ".checkpoint.termination",
    "ProcessLost": ".training.crew",
    "limit_threads": ".training.threads",
    "TransitionDensity": ".density.transition",
    "OutsideWarning": ".density.guard",
    "ModelFileError": ".density.files",
    "load": ".density.files",
    "learn": ".learning",
    "TrainingFailed": ".learning",
    "propagate": ".uses.green",
    "bridge": ".uses.bridges",
    "filter": ".uses.filtering",
    "WeightsVanished": ".uses.weights",
    "log_likelihood": ".uses.likelihood",
    "maximum_likelihood": ".uses.estimation",
    "infer": ".uses.inference",
    "errors": ".evaluate.errors",
}
_ROOMS = {
    "models": ".problem.models",
    "view": ".view",
    "evaluate": ".evaluate",
    "sweep": ".sweep",
    "numpyro": ".uses.numpyro_law",
}

__all__ = [*_PUBLIC, *_ROOMS, "__version__"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("diracflow")
    if name in _ROOMS:
        return importlib.import_module(_ROOMS[name], __name__)
    if name in _PUBLIC:
        value = getattr(importlib.import_module(_PUBLIC[name], __name__), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'diracflow' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
