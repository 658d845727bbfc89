"""Progress displays.

On a terminal one line is redrawn after every step. Otherwise a line is printed every few seconds,
so that log files stay short.
"""

import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Self

from .state import Record, Status

# Seconds between two lines in a log.
_PLAIN_EVERY = 10.0


class Progress:
    """A display that shows nothing, and the interface of all displays: a context manager."""

    def __init__(self, horizon: float):
        self.horizon = horizon
        self.steps = 0
        self.rejected = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the display."""

    def resume(self, history: Sequence[Record]) -> None:
        """Take over the steps of a resumed run; called once before the first step."""
        self.steps = len(history)
        self.rejected = sum(record.rejected for record in history)
        if history:
            reached = f"t={history[-1].time:.4g}/{self.horizon:g}"
            self.announce(f"resumed at {reached}, after {self.steps} steps")

    def announce(self, text: str) -> None:
        """Show a line of text, such as a description of the training before it starts."""

    def stage(self, name: str, done: str) -> None:
        """Show what is computed before or after the steps, and what is done of it."""

    def update(self, record: Record) -> None:
        """Count and show a step; called after every accepted step."""
        self.steps += 1
        self.rejected += record.rejected
        self._show(record)

    def finish(self, status: Status) -> None:
        """Show the final status; called once, when training has ended."""
        self.announce(f"{status.name.lower()}: {status.value}")

    def _show(self, record: Record) -> None:
        """Show an accepted step."""

    def _line(self, record: Record) -> str:
        return (
            f"t={record.time:.4g}/{self.horizon:g}  step {self.steps} ({self.rejected} rejected)  "
            f"held-out residual {record.fresh_residual:.1e}, TV bound {record.bound:.1g}  "
            f"rank {record.rank:.0f}  "
            f"{record.seconds:.0f} s, about {_duration(self._remaining(record))} left"
        )

    def _remaining(self, record: Record) -> float:
        # Step lengths are proportional to the clock near the start, and constant later. The
        # estimate is the geometric mean of the numbers of steps that the two assumptions give.
        clock, end = record.time**0.5, self.horizon**0.5
        constant = max(end - clock, 0.0) / record.length
        proportional = max(math.log(end / clock), 0.0) * clock / record.length
        return math.sqrt(constant * proportional) * record.seconds / self.steps


class PlainProgress(Progress):
    """A display that calls `write` with a line every few seconds, for logs.

    By default lines are printed to the standard error.
    """

    def __init__(self, horizon: float, write: Callable[[str], object] | None = None):
        super().__init__(horizon)
        self._write = write or (lambda line: print(line, file=sys.stderr, flush=True))
        self._next = 0.0
        self._stages: dict[str, float] = {}  # times of their last lines

    def announce(self, text: str) -> None:
        self._write(text)

    def stage(self, name: str, done: str) -> None:
        now = time.monotonic()
        if now >= self._stages.get(name, -math.inf) + _PLAIN_EVERY:
            self._write(_stage_line(name, done))
            self._stages[name] = now

    def _show(self, record: Record) -> None:
        if record.seconds >= self._next or record.time >= self.horizon:
            self._write(self._line(record))
            self._next = record.seconds + _PLAIN_EVERY


class CallbackProgress(Progress):
    """A display that calls a function of the user with the `Record` of every step."""

    def __init__(self, horizon: float, callback: Callable[[Record], object]):
        super().__init__(horizon)
        self._callback = callback

    def _show(self, record: Record) -> None:
        self._callback(record)


class LiveProgress(Progress):
    """A display that redraws one line of a terminal after every step."""

    def __init__(self, horizon: float):
        super().__init__(horizon)
        from rich.console import Console

        self._status = Console(stderr=True).status("")

    def __enter__(self) -> Self:
        self._status.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._status.stop()

    def announce(self, text: str) -> None:
        self._status.console.print(text, highlight=False)

    def stage(self, name: str, done: str) -> None:
        self._status.update(_stage_line(name, done))

    def _show(self, record: Record) -> None:
        self._status.update(self._line(record))


def progress_for(horizon: float, shown: bool) -> Progress:
    """Return the display that suits the standard error, or a silent one unless `shown`."""
    if not shown:
        return Progress(horizon)
    # A dumb terminal cannot redraw a line.
    live = sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    return LiveProgress(horizon) if live else PlainProgress(horizon)


def _stage_line(name: str, done: str) -> str:
    return f"{name}: {done}" if done else f"{name} …"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
