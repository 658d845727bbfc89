"""Results on the standard output, everything else on the standard error.

While a command runs, whatever other code prints (a user's file, a drift that is being traced) goes
to the standard error, so that results can be piped and parsed.
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


def result_stream() -> TextIO:
    """Return the stream for results."""
    return _RESULTS[-1] if _RESULTS else sys.stdout


def emit(text: str) -> None:
    """Print a result."""
    print(text, file=result_stream(), flush=True)


def talk(text: str) -> None:
    """Print a message that is not a result."""
    print(text, file=sys.stderr, flush=True)


def report_error(message: str, code: Exit, as_json: bool) -> None:
    """Print an error; with `--json` also as an object on the standard output."""
    if as_json:
        emit(json.dumps({"error": message, "exit_code": int(code)}))
    talk(f"diracflow: {message}")


def only_results(function: Callable[..., None]) -> Callable[..., None]:
    """Return `function` with the standard output redirected, except for what it emits."""

    @functools.wraps(function)
    def call(*arguments: Any, **keywords: Any) -> None:
        _RESULTS.append(sys.stdout)
        try:
            with contextlib.redirect_stdout(sys.stderr):
                function(*arguments, **keywords)
        finally:
            _RESULTS.pop()

    return call


def open_streams() -> None:
    """Open streams that were closed when the process started.

    Otherwise the next file that is opened would become the standard output.
    """
    handle = os.open(os.devnull, os.O_RDWR)
    while handle <= 2:
        handle = os.dup(handle)
    os.close(handle)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 (open until the end)


def discard_output() -> None:
    """Redirect the standard output to nowhere, after its reader has closed the pipe."""
    with contextlib.suppress(OSError, ValueError):
        handle = os.open(os.devnull, os.O_WRONLY)
        os.dup2(handle, sys.stdout.fileno())
        os.close(handle)


def flush_output() -> None:
    """Flush the standard output; discard the rest if that fails, or Python prints a traceback."""
    try:
        sys.stdout.flush()
    except OSError:
        discard_output()


@contextlib.contextmanager
def one_line_warnings() -> Iterator[None]:
    """Print each warning as one line, without its position in the source."""

    def show(message: Warning | str, *position: Any, **rest: Any) -> None:
        talk(f"diracflow: warning: {message}")

    with warnings.catch_warnings():
        warnings.showwarning = cast(Any, show)
        yield


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Turn SIGTERM into an exception, so that incomplete files are removed."""

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
