"""Starting the process of a run, and watching over it.

This is all that a backend has done on its machines. The word to stop is a file, since machines
share the directory of the sweep and nothing else.
"""

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ..storage.atomic import write_atomically
from .run_folder import KILLED, RunFolder

# Seconds between two looks at the process and at the word to stop.
_EVERY = 0.2


@dataclasses.dataclass(frozen=True)
class Stop:
    """A word to all processes of a sweep, wherever they are."""

    path: Path

    def ask(self, at_once: bool = False) -> None:
        """Let runs keep what they have and end, or end at once."""
        write_atomically(self.path, [b"kill" if at_once else b"stop"])

    def clear(self) -> None:
        """Let runs begin."""
        self.path.unlink(missing_ok=True)

    def word(self) -> str:
        """What is asked for; nothing, as a rule."""
        try:
            return self.path.read_text()
        except FileNotFoundError:
            return ""


@dataclasses.dataclass(frozen=True)
class Launch:
    """What it takes to start a run."""

    folder: Path
    base: Path
    stop: Path
    threads: int | None = None
    program: tuple[str, ...] | None = None  # that does the run; ours, unless told otherwise

    @property
    def name(self) -> str:
        return self.folder.name


def launch(what: Launch, cores: Sequence[int] | None = None) -> None:
    """Start a run's process and wait for its end; what it found is in the folder."""
    folder, stop = RunFolder(what.folder), Stop(what.stop)
    if stop.word():
        return
    with folder.log.open("ab") as log:
        child = subprocess.Popen(
            _command(what, cores),
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            # Ctrl-C in the terminal is for the sweep, which then asks its runs to stop.
            start_new_session=True,
        )
    asked = _watched(child, stop)
    if child.returncode and not asked and folder.result() is None:
        folder.finish({"status": KILLED, "failed": True, "message": _death(child.returncode)})


def _command(what: Launch, cores: Sequence[int] | None) -> list[str]:
    # Without the current directory: files of the user's are not to take the place of modules.
    ours = (sys.executable, "-P", "-m", "diracflow.sweep.work")
    command = [*(what.program or ours), str(what.folder), str(what.base)]
    command += [] if what.threads is None else ["--threads", str(what.threads)]
    return command + (["--cores", *map(str, cores)] if cores else [])


def _watched(child: subprocess.Popen, stop: Stop) -> bool:
    """Wait for the end of a process; whether it was asked to."""
    asked = False
    try:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_EVERY)
                return asked
            word = stop.word()
            if word == "kill":
                child.kill()
            elif word and not asked:
                child.terminate()
            asked = asked or bool(word)
    except BaseException:
        child.terminate()  # it keeps its training
        child.wait()
        raise
    finally:
        if child.stdin is not None:
            with contextlib.suppress(OSError):
                child.stdin.close()


def _death(code: int) -> str:
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
        hint = " (out of memory?)" if name == "SIGKILL" else ""
        return f"The process was ended by {name}{hint}; see log.txt in its folder."
    return f"The process ended with exit code {code}; see log.txt in its folder."


def cores_for(slots: int, threads: int | None) -> list[tuple[int, ...] | None]:
    """Cores for processes side by side: apart where there are enough, else left to the system."""
    if threads is None or not hasattr(os, "sched_getaffinity"):
        return [None] * slots
    allowed = sorted(os.sched_getaffinity(0))
    if slots * threads > len(allowed):
        return [None] * slots
    return [tuple(allowed[i * threads : (i + 1) * threads]) for i in range(slots)]
