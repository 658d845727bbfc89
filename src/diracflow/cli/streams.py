"""Results on the standard output, all else on the standard error.

While a command runs, whatever is printed by others (a user's file, a drift that is being traced)
goes to the standard error, so that results can be piped and parsed.
"""

import contextlib
import functools
import json
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, TextIO, cast

from .exits import Exit, Terminated

_RESULTS: list[TextIO] = []


def results() -> TextIO:
    """Where results go."""
    return _RESULTS[-1] if _RESULTS else sys.stdout


def emit(text: str) -> None:
    """Print a result."""
    print(text, file=results(), flush=True)


def talk(text: str) -> None:
    """Print what is not a result."""
    print(text, file=sys.stderr, flush=True)


def command(function: Callable[..., None]) -> Callable[..., None]:
    """A command of which only what it emits reaches the standard output."""

    @functools.wraps(function)
    def apart(*arguments: Any, **keywords: Any) -> None:
        _RESULTS.append(sys.stdout)
        try:
            with contextlib.redirect_stdout(sys.stderr):
                function(*arguments, **keywords)
        finally:
            _RESULTS.pop()

    return apart


def report_error(message: str, code: Exit, as_json: bool) -> None:
    """One line about an error; to a machine that asked for JSON also an object."""
    if as_json:
        emit(json.dumps({"error": message, "exit_code": int(code)}))
    talk(f"diracflow: {message}")


def open_streams() -> None:
    """Give a process that was started with closed streams somewhere to write to.

    Else the next file that is opened would take the place of the standard output.
    """
    handle = os.open(os.devnull, os.O_RDWR)
    while handle <= 2:
        handle = os.dup(handle)
    os.close(handle)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 (as long as the process)


def close_pipe() -> None:
    """Let Python's last flush go nowhere, once the reader of the output has gone."""
    with contextlib.suppress(OSError, ValueError):
        handle = os.open(os.devnull, os.O_WRONLY)
        os.dup2(handle, sys.stdout.fileno())
        os.close(handle)


def settle() -> None:
    """Write out what is left, or drop it if that fails: Python's own attempt would be loud."""
    try:
        sys.stdout.flush()
    except OSError:
        close_pipe()


@contextlib.contextmanager
def short_warnings() -> Iterator[None]:
    """Warnings as one line each, without the place in our code that gave them."""

    def show(message: Warning | str, *where: Any, **rest: Any) -> None:
        talk(f"diracflow: warning: {message}")

    with warnings.catch_warnings():
        warnings.showwarning = cast(Any, show)
        yield


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM as an exception, so that files half written are removed."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
