"""Models, SDEs, laws and points from the arguments of a command."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np

from ..density.learned import LearnedDensity
from ..density.model_file import load
from ..models.catalogue import Model, exact_of, named_object
from ..sde.laws import AbstractLaw, law_from
from ..sde.sde import SDE
from ..transition.query_progress import query_progress
from ..transition.transition_density import AbstractTransitionDensity


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


def load_model(path: Path, sde: str | None) -> LearnedDensity:
    """Return the density in a file; `sde` is FILE.py:NAME for equations that files do not hold."""
    prepare_jax()
    return load(path, None if sde is None else read_sde(sde))


def load_with_exact(
    path: Path, sde: str | None
) -> tuple[LearnedDensity, AbstractTransitionDensity | None]:
    """Return the density in a file, and the exact one of a built-in model or a user's `Model`."""
    prepare_jax()
    found = None if sde is None else named_object(sde)
    density = load(path, found.sde if isinstance(found, Model) else found)
    known = found.exact if isinstance(found, Model) else None
    return density, exact_of(density.sde) if known is None else known


def read_sde(text: str) -> SDE:
    """Return the SDE that FILE.py:NAME defines, by itself or as part of a `Model`."""
    found = named_object(text)
    return found.sde if isinstance(found, Model) else found


@contextlib.contextmanager
def query_context(float32: bool) -> Iterator[None]:
    """Set the precision of queries, and show the progress of long ones."""
    with jax.enable_x64(not float32), query_progress():
        yield


def parse_params(text: str | None) -> dict[str, float] | None:
    """Return the parameters that `--params` names."""
    if text is None:
        return None
    try:
        return {name: float(value) for name, value in json.loads(text).items()}
    except (json.JSONDecodeError, AttributeError, TypeError, ValueError) as error:
        example = '{"rate": 1.5}'
        raise ValueError(
            f"`--params` maps names to numbers as JSON, such as '{example}'; got {text!r}."
        ) from error


def parse_point(name: str, text: str, dim: int) -> np.ndarray:
    """Return the point that the option `--name` gives as comma-separated numbers."""
    try:
        point = np.array([float(part) for part in text.split(",")])
    except ValueError:
        raise ValueError(f"`--{name}` takes comma-separated numbers; got {text!r}.") from None
    if len(point) != dim:
        raise ValueError(f"`--{name}` needs {dim} numbers for this model; got {len(point)}.")
    return point


def parse_law(text: str) -> AbstractLaw:
    """Return a law from its JSON description, as model files hold it."""
    try:
        return law_from(json.loads(text))
    except (json.JSONDecodeError, AttributeError, TypeError, KeyError) as error:
        example = '{"law": "Normal", "mean": 0, "std": 1}'
        raise ValueError(
            f"A law is written as JSON, such as '{example}'; got {text!r} ({error})."
        ) from error


def parse_laws(option: str, text: str) -> dict[str, AbstractLaw]:
    """Return the law of each parameter that an option gives as JSON."""
    try:
        laws = json.loads(text)
        return {name: parse_law(json.dumps(law)) for name, law in laws.items()}
    except (json.JSONDecodeError, AttributeError) as error:
        raise ValueError(
            f"`{option}` maps parameters to laws as JSON, such as "
            f"""'{{"rate": {{"law": "LogNormal", "mean": 0, "std": 1}}}}'; got {text!r}."""
        ) from error


def parse_number_or_law(text: str) -> float | AbstractLaw:
    """Return a number, or a law from its JSON description."""
    try:
        return float(text)
    except ValueError:
        return parse_law(text)
