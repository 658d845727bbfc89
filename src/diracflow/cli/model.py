"""From what is typed to a density: model files, users' SDEs, points."""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

from ..density.files import load
from ..density.transition import TransitionDensity
from ..problem.sde import SDE
from .run import prepare_jax


def load_model(path: Path, sde: str | None) -> TransitionDensity:
    """The density in a file; `sde` is FILE.py:NAME for equations that files do not hold."""
    prepare_jax()
    return load(path, None if sde is None else read_sde(sde))


def read_sde(text: str) -> SDE:
    """The object NAME that FILE.py defines; the file is run."""
    file, colon, name = text.rpartition(":")
    if not colon or not name.isidentifier():
        raise ValueError(f"`--sde` takes FILE.py:NAME; got {text!r}.")
    found = getattr(_module(Path(file)), name, None)
    if not isinstance(found, SDE):
        kind = "nothing" if found is None else type(found).__name__
        raise ValueError(f"`{name}` in {file} must be a `diracflow.SDE`; found {kind}.")
    return found


def parse_point(name: str, text: str, dim: int) -> np.ndarray:
    """Numbers divided by commas."""
    try:
        point = np.array([float(part) for part in text.split(",")])
    except ValueError:
        raise ValueError(f"`--{name}` takes numbers divided by commas; got {text!r}.") from None
    if len(point) != dim:
        raise ValueError(f"`--{name}` needs {dim} numbers for this model; got {len(point)}.")
    return point


def _module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise ValueError(f"No Python file at {path}.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
