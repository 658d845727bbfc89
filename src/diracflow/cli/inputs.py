"""From what is typed to a density: model files, users' SDEs, points."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..density.learned import LearnedDensity
from ..density.model_file import load
from ..models.catalogue import Model, exact_of
from ..sde.sde import SDE
from ..transition.query_progress import query_progress
from ..transition.transition_density import AbstractTransitionDensity
from .preparation import prepare_jax
from .user_problem import named_object


def load_model(path: Path, sde: str | None) -> LearnedDensity:
    """The density in a file; `sde` is FILE.py:NAME for equations that files do not hold."""
    prepare_jax()
    return load(path, None if sde is None else read_sde(sde))


def load_with_exact(
    path: Path, sde: str | None
) -> tuple[LearnedDensity, AbstractTransitionDensity | None]:
    """The density in a file, and the exact one of a built-in model or of a user's `Model`."""
    prepare_jax()
    found = None if sde is None else named_object(sde)
    density = load(path, found.sde if isinstance(found, Model) else found)
    own = found.exact if isinstance(found, Model) else None
    return density, exact_of(density.sde) if own is None else own


@contextlib.contextmanager
def many_rows(single: bool) -> Iterator[None]:
    """Long queries show how far they are; those of `single` precision are in float32."""
    with jax.enable_x64(not single), query_progress():
        yield


def read_sde(text: str) -> SDE:
    """The equation that FILE.py:NAME stands for."""
    found = named_object(text)
    return found.sde if isinstance(found, Model) else found


def parse_given(params: str | None, start_time: float | None) -> dict[str, Any]:
    """Keywords of queries, from the options `--params` and `--start-time`."""
    return {"params": None if params is None else _numbers(params), "start_time": start_time}


def _numbers(text: str) -> dict[str, float]:
    try:
        return {name: float(value) for name, value in json.loads(text).items()}
    except (json.JSONDecodeError, AttributeError, TypeError, ValueError) as error:
        example = '{"rate": 1.5}'
        raise ValueError(
            f"`--params` maps names to numbers as JSON, such as '{example}'; got {text!r}."
        ) from error


def parse_point(name: str, text: str, dim: int) -> np.ndarray:
    """Numbers divided by commas."""
    try:
        point = np.array([float(part) for part in text.split(",")])
    except ValueError:
        raise ValueError(f"`--{name}` takes numbers divided by commas; got {text!r}.") from None
    if len(point) != dim:
        raise ValueError(f"`--{name}` needs {dim} numbers for this model; got {len(point)}.")
    return point
