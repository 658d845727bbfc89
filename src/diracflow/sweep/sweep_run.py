"""One run of a sweep: its specification, its name, and the problem that it solves."""

import dataclasses
import functools
import hashlib
import json
import re
from pathlib import Path
from typing import Any

from ..models.catalogue import Model, model, named_object
from ..models.model import require_positive
from ..planning.settings import settings_for
from ..sde.argument_checks import checked_count, checked_number
from ..sde.laws import AbstractLaw, law_from
from ..sde.sde import SDE


@dataclasses.dataclass(frozen=True)
class Run:
    """Everything that determines the result of a run, as values that JSON can hold."""

    model: str | None
    arguments: dict[str, Any]
    file: str | None  # FILE.py:NAME
    digest: str | None  # of the file's text: a changed file is a different run
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

    @property
    def label(self) -> str:
        """The SDE as tables name it."""
        arguments = ", ".join(f"{name}={value}" for name, value in self.arguments.items())
        return (self.model or str(self.file)) + (f"({arguments})" if arguments else "")

    @functools.cached_property
    def name(self) -> str:
        """A readable name with a digest. It does not depend on the other runs of the sweep."""
        content = {k: v for k, v in dataclasses.asdict(self).items() if k != "memory_limit"}
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:10]
        stem = self.model or Path(str(self.file).rpartition(":")[0]).stem
        stem = re.sub(r"[^A-Za-z0-9_]+", "_", stem)[:40]
        return f"{stem}-{self.preset}-{self.seed}-{digest}"

    @property
    def overrides(self) -> dict[str, Any]:
        """The settings of the run, and the fields of the model that it replaces."""
        fields = ("horizon", "starts", "params", "start_time")
        replaced = {name: getattr(self, name) for name in fields}
        return {name: value for name, value in replaced.items() if value is not None} | (
            self.settings
        )

    def check(self, base: Path) -> None:
        """Raise a `ValueError` for every mistake that can be found without computing."""
        if checked_count("seed", self.seed, 0) >= 2**32:
            raise ValueError(f"`seed` must be less than 2^32; got {self.seed}.")
        if self.memory_limit is not None:
            require_positive(memory_limit=self.memory_limit)
        settings_for(self.preset, **self.settings)
        self.problem(base)

    def problem(self, base: Path) -> Model:
        """Return the SDE with its starts, its horizon and, where known, its exact density.

        **Arguments:**

        - `base`: the directory to which the path in `file` is relative.
        """
        found = self._model_or_sde(base)
        if isinstance(found, SDE):
            if self.starts is None or self.horizon is None:
                raise ValueError(
                    f"{self.label} is an SDE without a model around it: give `starts`, such as "
                    '{law = "Normal", mean = 0, std = 1}, and `horizon`.'
                )
            # The horizon is replaced below.
            found = Model(self.label, found, _law("starts", self.starts), 1.0, None)
        changes: dict[str, Any] = {}
        if self.horizon is not None:
            require_positive(horizon=self.horizon)
            changes["horizon"] = float(self.horizon)
        if self.starts is not None:
            changes["starts"] = _law("starts", self.starts)
        if self.params is not None:
            if not isinstance(self.params, dict):
                raise ValueError(f"`params` must be a table of laws by name; got {self.params!r}.")
            changes["params"] = {name: _law(name, law) for name, law in self.params.items()}
        if isinstance(self.start_time, dict):
            changes["start_time"] = _law("start_time", self.start_time)
        elif self.start_time is not None:
            changes["start_time"] = checked_number("start_time", self.start_time)
        return dataclasses.replace(found, **changes)

    def _model_or_sde(self, base: Path) -> SDE | Model:
        if self.model is not None:
            return model(self.model, **self.arguments)
        return _from_file(str(base / str(self.file)), self.digest)


def digest_of(file: str, base: Path) -> str:
    """Return a digest of the Python file in `file`, which is written FILE.py:NAME."""
    path = base / file.rpartition(":")[0]
    if not path.is_file():
        raise ValueError(f"`file` must be FILE.py:NAME; there is no file {path}.")
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


@functools.lru_cache(maxsize=64)
def _from_file(text: str, digest: str | None) -> SDE | Model:
    return named_object(text)


def _law(name: str, description: Any) -> AbstractLaw:
    try:
        return law_from(description)
    except (AttributeError, TypeError, KeyError, ValueError) as error:
        raise ValueError(
            f'`{name}` must be a law, such as {{law = "Normal", mean = 0, std = 1}}; got '
            f"{description!r} ({error})."
        ) from None
