"""The runs of a sweep: their specifications, their folders, and the table of their results."""

import csv
import dataclasses
import functools
import hashlib
import io
import json
import re
from pathlib import Path
from typing import Any

from ..models.catalogue import Model, model, named_object, require_positive
from ..planning.settings import settings_for
from ..sde.argument_checks import checked_count, checked_number
from ..sde.laws import AbstractLaw, law_from
from ..sde.sde import SDE
from ..storage.files import write_atomically
from ..storage.strict_json import json_text, plain
from ..training.checkpoint_file import holds_checkpoint

COLUMNS = (
    *("run", "model", "preset", "seed", "settings", "status", "horizon", "asked_horizon"),
    *("seconds", "steps", "parameters", "error", "largest_error", "certificate", "failed"),
    "message",
)


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
        found: SDE | Model
        if self.model is not None:
            found = model(self.model, **self.arguments)
        else:
            found = _from_file(str(base / str(self.file)), self.digest)
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
        if isinstance(found, Model):
            return dataclasses.replace(found, **changes)
        if self.starts is None or self.horizon is None:
            raise ValueError(
                f"{self.label} is an SDE without a model around it: give `starts`, such as "
                '{law = "Normal", mean = 0, std = 1}, and `horizon`.'
            )
        return Model(name=self.label, sde=found, exact=None, **changes)


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


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """The files of one run.

    - `run.json`: the specification of the run.
    - `checkpoint/`: the state of a training that has not finished.
    - `model.dflow`: the learned density; `partial.dflow` if training failed.
    - `result.json`: the result; a run without this file has not finished.
    - `log.txt`: the output of the run's processes.
    """

    path: Path

    def prepare(self, run: Run) -> None:
        """Create the folder, write the specification of the run, and remove an earlier result."""
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / "result.json").unlink(missing_ok=True)
        self.write("run.json", dataclasses.asdict(run))

    def run(self) -> Run:
        """Return the run that `prepare` wrote."""
        return Run(**json.loads((self.path / "run.json").read_text("utf-8")))

    def result(self) -> dict[str, Any] | None:
        """Return the result, or `None` if the run has not finished."""
        try:
            return json.loads((self.path / "result.json").read_text("utf-8"))
        except FileNotFoundError:
            return None

    def fail(self, status: str, message: str) -> None:
        """Write the result of a run that produced no density: status `ERROR` or `KILLED`."""
        self.write("result.json", {"status": status, "failed": True, "message": message})

    def write(self, name: str, content: dict[str, Any]) -> None:
        """Write `run.json` or `result.json`."""
        write_atomically(self.path / name, [(json.dumps(content, indent=1) + "\n").encode()])


@dataclasses.dataclass(frozen=True)
class Sweep:
    """The runs of a sweep, its directory, and the directory of the file that describes it."""

    out: Path
    base: Path
    runs: tuple[Run, ...]

    @property
    def stop(self) -> Path:
        """The file that asks all runs to stop."""
        return self.out / "stop"

    def folder(self, run: Run) -> RunFolder:
        """Return the folder of a run."""
        return RunFolder(self.out / "runs" / run.name)

    def row(self, run: Run) -> dict[str, Any]:
        """Return the result of a run, or its status if it has not finished."""
        folder = self.folder(run)
        replaced = {n: getattr(run, n) for n in ("horizon", "starts", "params", "start_time")}
        row = {
            "run": run.name,
            "model": run.label,
            "preset": run.preset,
            "seed": run.seed,
            "settings": {n: v for n, v in replaced.items() if v is not None} | run.settings,
            "status": "STOPPED" if holds_checkpoint(folder.path / "checkpoint") else "WAITING",
            **plain(folder.result() or {}, words=False),
        }
        return {name: row.get(name) for name in COLUMNS}

    def write_tables(self) -> list[dict[str, Any]]:
        """Write `table.csv` and `table.json`, each atomically, and return the rows."""
        rows, text = sweep_table(self), io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows({**row, "settings": settings_text(row["settings"])} for row in rows)
        write_atomically(self.out / "table.csv", [text.getvalue().encode()])
        content = json_text(rows, words=False, indent=1) + "\n"
        write_atomically(self.out / "table.json", [content.encode()])
        return rows


def sweep_table(sweep: Sweep) -> list[dict[str, Any]]:
    """Return the current row of each run.

    **Arguments:**

    - `sweep`: a sweep, as returned by `read_sweep`.
    """
    return [sweep.row(run) for run in sweep.runs]


def settings_text(settings: dict[str, Any]) -> str:
    """Return names and values on one line."""
    texts = {name: json.dumps(v) if isinstance(v, dict) else v for name, v in settings.items()}
    return " ".join(
        f"{name}={f'{v:g}' if isinstance(v, float) else v}" for name, v in texts.items()
    )
