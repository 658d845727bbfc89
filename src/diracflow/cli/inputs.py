"""Models, SDEs, laws and points from the arguments of a command."""

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np

from ..density.learned import LearnedDensity
from ..density.model_file import load
from ..models.catalogue import Model, exact_of, named_object
from ..sde.laws import AbstractLaw, law_from
from ..transition.query_progress import query_progress
from ..transition.transition_density import AbstractTransitionDensity

T = TypeVar("T")


def prepare_jax() -> None:
    """Enable float64, and cache compiled programs in the user's home."""
    jax.config.update("jax_enable_x64", True)
    if getattr(jax.config, "jax_compilation_cache_dir") is None:  # noqa: B009 (unknown to mypy)
        cache = Path(os.path.expanduser("~")) / ".cache" / "diracflow"
        # Without a writable home, programs are compiled in every run.
        with contextlib.suppress(OSError):
            cache.mkdir(parents=True, exist_ok=True)
            if os.access(cache, os.W_OK):
                jax.config.update("jax_compilation_cache_dir", str(cache))


def load_model(path: Path, sde: str | None) -> tuple[LearnedDensity, Model | None]:
    """Return the density in a file, and the user's `Model` if FILE.py:NAME in `sde` names one."""
    prepare_jax()
    found = None if sde is None else named_object(sde)
    if isinstance(found, Model):
        return load(path, found.sde), found
    return load(path, found), None


def load_with_exact(
    path: Path, sde: str | None
) -> tuple[LearnedDensity, AbstractTransitionDensity | None]:
    """Return the density in a file, and the exact one of a built-in model or a user's `Model`."""
    density, found = load_model(path, sde)
    known = None if found is None else found.exact
    return density, exact_of(density.sde) if known is None else known


@contextlib.contextmanager
def query_context(float32: bool) -> Iterator[None]:
    """Set the precision of queries, and show the progress of long ones."""
    with jax.enable_x64(not float32), query_progress():
        yield


def parse_point(name: str, text: str, dim: int) -> np.ndarray:
    """Return the point that the option `--name` gives as comma-separated numbers."""
    try:
        point = np.array([float(part) for part in text.split(",")])
    except ValueError:
        raise ValueError(f"`--{name}` takes comma-separated numbers; got {text!r}.") from None
    if len(point) != dim:
        raise ValueError(f"`--{name}` needs {dim} numbers for this model; got {len(point)}.")
    return point


def parse_params(text: str) -> dict[str, float]:
    """Return the parameters that `--params` names."""
    numbers = lambda found: {name: float(value) for name, value in found.items()}
    return _from_json(text, numbers, "`--params` maps names to numbers", '{"rate": 1.5}')


def parse_law(text: str) -> AbstractLaw:
    """Return a law from its JSON description, as model files hold it."""
    return _from_json(text, law_from, "A law is written", '{"law": "Normal", "mean": 0, "std": 1}')


def parse_laws(option: str, text: str) -> dict[str, AbstractLaw]:
    """Return the law of each parameter that an option gives as JSON."""
    example = '{"rate": {"law": "LogNormal", "mean": 0, "std": 1}}'
    laws = lambda found: {name: law_from(law) for name, law in found.items()}
    return _from_json(text, laws, f"`{option}` maps parameters to laws", example)


def _from_json(text: str, convert: Callable[[Any], T], rule: str, example: str) -> T:
    """Convert the JSON of an option; every error about it shows an example."""
    try:
        return convert(json.loads(text))
    except (AttributeError, TypeError, KeyError, ValueError) as error:
        raise ValueError(f"{rule} as JSON, such as '{example}'; got {text!r} ({error}).") from error
