"""SIGTERM as an exception, so that a run can write a checkpoint before its process ends."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TrainingTerminated(SystemExit):
    """SIGTERM ended a training; uncaught, it ends the process with exit code 143."""

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGTERM)


@contextmanager
def terminable() -> Iterator[None]:
    """Raise `TrainingTerminated` on SIGTERM, once.

    A handler installed by the user stays in force. Outside the main thread, where Python handles
    no signals, the default action stays in force.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return

    def terminate(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # while the checkpoint is written
        raise TrainingTerminated

    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
