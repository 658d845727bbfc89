"""The folder of a run: what it is, its training, and what came out.

run.json      what determines it
checkpoint/   the training while it runs
model.dflow   what was learned; partial.dflow if numerics ended the training
result.json   how it ended; a run without this file has not
log.txt       what its processes printed
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

from ..storage.atomic import write_atomically
from ..training.checkpoint_folder import holds_checkpoint
from .sweep_run import Run, from_json

# Of a run that has no result yet.
WAITING, STOPPED = "WAITING", "STOPPED"
# Of a run that ended outside of a training: an exception, the death of its process.
ERROR, KILLED = "ERROR", "KILLED"


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """Where one run is kept."""

    path: Path

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint"

    @property
    def log(self) -> Path:
        return self.path / "log.txt"

    @property
    def lock(self) -> Path:
        return self.path / "run.lock"

    def prepare(self, run: Run) -> None:
        """Make the folder and say in it what is run."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_json(self.path / "run.json", dataclasses.asdict(run))

    def run(self) -> Run:
        """What is run here."""
        return from_json((self.path / "run.json").read_text("utf-8"))

    def result(self) -> dict[str, Any] | None:
        """How the run ended, if it has."""
        try:
            return json.loads((self.path / "result.json").read_text("utf-8"))
        except FileNotFoundError:
            return None

    def finish(self, result: dict[str, Any]) -> None:
        """Say how it ended."""
        write_json(self.path / "result.json", result)

    def reopen(self) -> None:
        """Forget how it ended, not what was learned."""
        (self.path / "result.json").unlink(missing_ok=True)

    def status(self) -> str:
        """How the run ended, or how far it is."""
        result = self.result()
        if result is not None:
            return result["status"]
        return STOPPED if holds_checkpoint(self.checkpoint) else WAITING


def write_json(path: Path, content: Any) -> None:
    """Whole or not at all."""
    write_atomically(path, [(json.dumps(content, indent=1) + "\n").encode()])
