"""diracflow: transition densities of diffusion processes, learned from the SDE alone.

The rooms, in the order of the computation. Each imports only from those above it:

- `storage`: atomic writes, locks, signal handlers, data files that are verified when read
- `sde`: what is solved: SDE, domains, charts, laws, parameters, checks
- `distribution`: moments, distribution functions, marginals and conditionals of any law
- `transition`: the query interface that all densities share: checks, batching, devices
- `models`: built-in models and their exact densities
- `equation`: the Fokker--Planck operator and moving frames
- `source`: the Gaussian that the flow starts from
- `flow`: how the density is represented: conditioners, layers, flow, ansatz (source + flow)
- `galerkin`: how parameters move: collocation points, assembly, regularised solve, velocity
- `planning`: every automatic choice of a training, with its reason
- `training`: the time loop, its steps, progress, checkpoints
- `certify`: the residual, and the error bound computed from it
- `density`: the learned density, composition in time, model files
- `learning`: `learn`, and what it returns if a training ended early
- `uses`: simulated paths, laws of any start, long runs, bridges, NumPyro distributions
- `hidden`: states seen with noise or in part: particle filter, smoother, forecasts, evidence
- `inference`: parameters from data: likelihood and its maximum, posteriors
- `evaluate`: error measures and reference solutions
- `sweep`: many trainings described by one file
- `view`: figures and reports
- `explore`: a local web page that shows a density
- `cli`: the command line
"""

import ast
import importlib
import pathlib
from typing import Any


def _public_names() -> dict[str, tuple[str, str]]:
    """Return the module and the name there of each import in the stub `__init__.pyi`.

    The stub is what type checkers read. It is also the only list of public names.
    """
    names = {}
    for node in ast.parse(pathlib.Path(__file__).with_suffix(".pyi").read_text()).body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                names[alias.asname or alias.name] = (node.module or "", alias.name)
    return names


_PUBLIC = _public_names()

__all__ = [*_PUBLIC, "__version__"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    """Import a public name on first use: `diracflow --help` must not wait for JAX."""
    if name == "__version__":
        from importlib.metadata import version

        return version("diracflow")
    if name not in _PUBLIC:
        raise AttributeError(f"module 'diracflow' has no attribute {name!r}")
    module, attribute = _PUBLIC[name]
    home = importlib.import_module(f"{__name__}.{module}".rstrip("."))
    value = vars(home).get(attribute)
    if value is None:  # a module
        value = importlib.import_module(f"{home.__name__}.{attribute}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
