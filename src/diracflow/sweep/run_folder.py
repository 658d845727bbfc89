"""The folder of a run.

run.json      the specification of the run
checkpoint/   the state of a training that has not finished
model.dflow   the learned density; partial.dflow if training failed
result.json   the result; a run without this file has not finished
log.txt       the output of the run's processes
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

from ..storage.files import write_atomically
from ..training.checkpoint_folder import holds_checkpoint
from .sweep_run import Run

# Status of a run without a result.
WAITING, STOPPED = "WAITING", "STOPPED"
# Status of a run that ended outside its training: an exception, or the death of its process.
ERROR, KILLED = "ERROR", "KILLED"


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """The files of one run."""

    path: Path

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint"

    @property
    def log(self) -> Path:
        return self.path / "log.txt"

    def prepare(self, run: Run) -> None:
        """Create the folder and write the specification of the run."""
        self.path.mkdir(parents=True, exist_ok=True)
        self._write("run.json", dataclasses.asdict(run))

    def run(self) -> Run:
        """Return the run that `prepare` wrote."""
        return Run(**json.loads((self.path / "run.json").read_text("utf-8")))

    def result(self) -> dict[str, Any] | None:
        """Return the result, or `None` if the run has not finished."""
        try:
            return json.loads((self.path / "result.json").read_text("utf-8"))
        except FileNotFoundError:
            return None

    def finish(self, result: dict[str, Any]) -> None:
        """Write the result."""
        self._write("result.json", result)

    def fail(self, status: str, message: str) -> None:
        """Write the result of a run that produced no density."""
        self.finish({"status": status, "failed": True, "message": message})

    def reopen(self) -> None:
        """Remove the result; the checkpoint stays, so that the run can resume."""
        (self.path / "result.json").unlink(missing_ok=True)

    def status(self) -> str:
        """Return the status of a run without a result."""
        return STOPPED if holds_checkpoint(self.checkpoint) else WAITING

    def _write(self, name: str, content: Any) -> None:
        write_atomically(self.path / name, [(json.dumps(content, indent=1) + "\n").encode()])
