"""One run of a sweep: what determines it, its name, and the problem it stands for."""

import dataclasses
import functools
import hashlib
import json
import re
from pathlib import Path
from typing import Any

from ..models.catalogue import Model, model
from ..models.user_file import named_object
from ..planning.settings import settings_for
from ..sde.laws import AbstractLaw, law_from
from ..sde.sde import SDE


@dataclasses.dataclass(frozen=True)
class Run:
    """Everything that the result of a run follows from, in plain values."""

    model: str | None
    arguments: dict[str, Any]
    file: str | None  # FILE.py:NAME
    digest: str | None  # of that file: another text is another run
    preset: str
    seed: int
    horizon: float | None
    starts: dict[str, Any] | None
    params: dict[str, Any] | None
    start_time: float | dict[str, Any] | None
    settings: dict[str, Any]
    certify: bool
    error_starts: int
    memory_limit: float | None

    def label(self) -> str:
        """The SDE as tables name it."""
        if self.model is None:
            return str(self.file)
        arguments = ", ".join(f"{name}={value}" for name, value in self.arguments.items())
        return f"{self.model}({arguments})" if arguments else self.model

    @functools.cached_property
    def name(self) -> str:
        """Readable, and the same in every sweep that holds this run."""
        told = {k: v for k, v in dataclasses.asdict(self).items() if k != "memory_limit"}
        digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:10]
        stem = self.model or Path(str(self.file).rpartition(":")[0]).stem
        stem = re.sub(r"[^A-Za-z0-9_]+", "_", stem)[:40]
        return f"{stem}-{self.preset}-{self.seed}-{digest}"

    def changes(self) -> dict[str, Any]:
        """What else is particular to it: settings, and what replaces the model's own."""
        other = {"horizon": self.horizon, "starts": self.starts, "params": self.params}
        other |= {"start_time": self.start_time}
        return {name: value for name, value in other.items() if value is not None} | self.settings


def from_json(text: str) -> Run:
    """The run that a folder's `run.json` holds."""
    return Run(**json.loads(text))


def problem_of(run: Run, base: Path) -> Model:
    """The SDE with starts, horizon and, where known, its exact density."""
    found = _found(run, base)
    if isinstance(found, SDE):
        if run.starts is None or run.horizon is None:
            raise ValueError(
                f"{run.label()} is an SDE without a model around it: give `starts`, such as "
                '{law = "Normal", mean = 0, std = 1}, and `horizon`.'
            )
        # Starts and horizon are those given; see below.
        found = Model(run.label(), found, law_of("starts", run.starts), 1.0, None)
    changes: dict[str, Any] = {}
    if run.horizon is not None:
        changes["horizon"] = _positive("horizon", run.horizon)
    if run.starts is not None:
        changes["starts"] = law_of("starts", run.starts)
    if run.params is not None:
        if not isinstance(run.params, dict):
            raise ValueError(f"`params` must be a table of laws by name; got {run.params!r}.")
        changes["params"] = {name: law_of(name, law) for name, law in run.params.items()}
    if run.start_time is not None:
        changes["start_time"] = _time(run.start_time)
    return dataclasses.replace(found, **changes)


def law_of(name: str, description: Any) -> AbstractLaw:
    """The law that a table describes."""
    try:
        return law_from(description)
    except (AttributeError, TypeError, KeyError, ValueError) as error:
        raise ValueError(
            f'`{name}` must be a law, such as {{law = "Normal", mean = 0, std = 1}}; got '
            f"{description!r} ({error})."
        ) from None


def require_sound(run: Run, base: Path) -> None:
    """Raise for mistakes that can be found before anything is computed."""
    if isinstance(run.seed, bool) or not isinstance(run.seed, int) or not 0 <= run.seed < 2**32:
        raise ValueError(f"`seed` must be a whole number from 0 to 2^32 - 1; got {run.seed!r}.")
    if run.memory_limit is not None:
        _positive("memory_limit", run.memory_limit)
    settings_for(run.preset, **run.settings)
    problem_of(run, base)


def digest_of(file: str, base: Path) -> str:
    """A digest of the Python file that FILE.py:NAME names."""
    path = base / file.rpartition(":")[0]
    if not path.is_file():
        raise ValueError(f"an SDE of your own is FILE.py:NAME; there is no file {path}.")
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _found(run: Run, base: Path) -> SDE | Model:
    if run.model is not None:
        return model(run.model, **run.arguments)
    return _from_file(str(base / str(run.file)), run.digest)


@functools.lru_cache(maxsize=64)
def _from_file(text: str, digest: str | None) -> SDE | Model:
    return named_object(text)


def _time(value: Any) -> float | AbstractLaw:
    if isinstance(value, dict):
        return law_of("start_time", value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"`start_time` must be a number or a law; got {value!r}.")
    return float(value)


def _positive(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ValueError(f"`{name}` must be a positive number; got {value!r}.")
    return float(value)
