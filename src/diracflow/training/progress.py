"""What a waiting user sees.

On a terminal one line is redrawn; otherwise a plain line is printed now and then, so that log files
stay short.
"""

import math
import os
import sys
from collections.abc import Callable, Sequence
from typing import Self

from .history import Record
from .status import Status

# Seconds between two plain lines.
_PLAIN_EVERY = 10.0


class Progress:
    """Reports steps towards a horizon; use as a context manager."""

    def __init__(self, horizon: float):
        self.horizon = horizon
        self.steps = 0
        self.rejected = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        """Silent progress has nothing to close."""

    def resume(self, history: Sequence[Record]) -> None:
        """Called once before the first step, with those of the run that is resumed."""
        self.steps = len(history)
        self.rejected = sum(record.rejected for record in history)
        if history:
            self._show_resumed(history[-1])

    def announce(self, text: str) -> None:
        """Called before training, with what it will take; silent progress keeps it to itself."""

    def update(self, record: Record) -> None:
        """Called after every accepted step."""
        self.steps += 1
        self.rejected += record.rejected
        self._show(record)

    def finish(self, status: Status) -> None:
        """Called once, when training has ended."""

    def _show(self, record: Record) -> None:
        """Silent progress shows nothing."""

    def _show_resumed(self, record: Record) -> None:
        """Silent progress shows nothing."""

    def _line(self, record: Record) -> str:
        return (
            f"t={record.time:.4g}/{self.horizon:g}  step {self.steps} ({self.rejected} rejected)  "
            f"residual {record.fresh_residual:.1e}, adding up to {record.bound:.1g}  "
            f"rank {record.rank:.0f}  "
            f"{record.seconds:.0f} s, about {_clock_time(self._remaining(record))} left"
        )

    def _remaining(self, record: Record) -> float:
        # Steps grow with the clock near the start and are even later. Between the counts of steps
        # that these two laws predict we take the geometric mean.
        clock, end = record.time**0.5, self.horizon**0.5
        even = max(end - clock, 0.0) / record.length
        growing = max(math.log(end / clock), 0.0) * clock / record.length
        return math.sqrt(even * growing) * record.seconds / self.steps


class PlainProgress(Progress):
    """A line every few seconds, for logs."""

    def __init__(self, horizon: float, write: Callable[[str], object] | None = None):
        super().__init__(horizon)
        self._write = write or (lambda line: print(line, file=sys.stderr, flush=True))
        self._next = 0.0

    def announce(self, text: str) -> None:
        self._write(text)

    def _show(self, record: Record) -> None:
        if record.seconds >= self._next or record.time >= self.horizon:
            self._write(self._line(record))
            self._next = record.seconds + _PLAIN_EVERY

    def _show_resumed(self, record: Record) -> None:
        self._write(f"resumed at t={record.time:.4g}/{self.horizon:g}, after {self.steps} steps")

    def finish(self, status: Status) -> None:
        self._write(f"{status.name.lower()}: {status.value}")


class LiveProgress(Progress):
    """One line of a terminal, redrawn after every step."""

    def __init__(self, horizon: float):
        super().__init__(horizon)
        from rich.console import Console

        self._status = Console(stderr=True).status("compiling the velocity …")

    def __enter__(self) -> Self:
        self._status.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._status.stop()

    def announce(self, text: str) -> None:
        self._status.console.print(text, highlight=False)

    def _show(self, record: Record) -> None:
        self._status.update(self._line(record))


def progress_for(horizon: float, shown: bool) -> Progress:
    """The progress display that fits where the output goes."""
    if not shown:
        return Progress(horizon)
    # A dumb terminal cannot redraw a line.
    live = sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    return LiveProgress(horizon) if live else PlainProgress(horizon)


def _clock_time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
