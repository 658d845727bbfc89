"""Stages of `learn` beside its steps: their progress, and the time limit that they share.

Computations that are also used alone, such as error bounds, mark their loops by `parts`. Outside
`watched` this changes nothing.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import NamedTuple, TypeVar

T = TypeVar("T")
U = TypeVar("U")


class OutOfTime(Exception):
    """A stage cannot end before the time limit."""


class Watch(NamedTuple):
    """Shows stages, and knows when they have to end."""

    show: Callable[[str, str], object]
    deadline: float  # of `time.monotonic`
    least: float  # seconds that a stage takes at least: it compiles

    def late(self) -> bool:
        """Return `True` if too little time is left for a stage to begin."""
        return time.monotonic() + self.least > self.deadline


_NOBODY = Watch(lambda stage, done: None, float("inf"), 0.0)  # outside of `watched`
_WATCH: ContextVar[Watch] = ContextVar("watch", default=_NOBODY)


@contextlib.contextmanager
def watched(
    show: Callable[[str, str], object], seconds: float = float("inf"), least: float = 0.0
) -> Iterator[None]:
    """Within this context, stages are shown, and raise `OutOfTime` if they cannot end in time.

    `seconds` is the time left, of which `least` must be left for a stage to begin.
    """
    token = _WATCH.set(Watch(show, time.monotonic() + seconds, least))
    try:
        yield
    finally:
        _WATCH.reset(token)


def tell(stage: str, done: str = "") -> None:
    """Show a stage, and what is done of it."""
    _WATCH.get().show(stage, done)


def begin(stage: str) -> None:
    """Show that a stage begins; raise `OutOfTime` if too little time is left."""
    if _WATCH.get().late():
        raise OutOfTime
    tell(stage)


def parts(stage: str, items: Sequence[T]) -> Iterator[T]:
    """Yield the parts of a stage, and show how many are done.

    Raise `OutOfTime` once the others would take too long at the pace of those before. The first is
    not counted, because programs are compiled in it.
    """
    begin(stage)
    watch, began = _WATCH.get(), time.monotonic()
    for done, item in enumerate(items):
        now = time.monotonic()
        began = now if done == 1 else began
        if done > 0:
            pace = (now - began) / max(done - 1, 1)
            if now + pace * (len(items) - done) > watch.deadline:
                raise OutOfTime
            watch.show(stage, f"{done} of {len(items)} parts")
        yield item


def in_time(make: Callable[[], T], otherwise: U) -> T | U:
    """Return what `make` returns, or `otherwise` if there is not enough time for it."""
    if _WATCH.get().late():  # preparations take time, too
        return otherwise
    try:
        return make()
    except OutOfTime:
        return otherwise
