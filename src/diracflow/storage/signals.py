"""Signal handlers that are installed for the time of a context."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def handling(handler: Callable[[int, FrameType | None], object], *numbers: int) -> Iterator[None]:
    """Handle signals by `handler` within this context.

    Python handles signals in the main thread only; in other threads nothing changes.
    """
    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, handler) for number in (numbers if main else ())}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
