"""The process of a command: its streams, its signals, its errors and its exit code.

Results are printed on the standard output, everything else on the standard error. While a command
runs, whatever other code prints (a user's file, a drift that is being traced) goes to the standard
error, so that results can be piped and parsed. The page `docs/statuses.md` lists the exit codes
with causes and remedies.
"""

import contextlib
import enum
import functools
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, TextIO, cast

import typer

from ..storage.signals import handling
from ..storage.strict_json import json_text

_RESULTS: list[TextIO] = []


class Exit(enum.IntEnum):
    """Exit codes of every command."""

    OK = 0
    FAILED = 1  # a check did not pass, or the computation failed numerically
    USAGE = 2  # invalid arguments, files or settings
    SYSTEM = 3  # missing permission, disk space or memory
    LOST = 4  # another process of the same training has ended
    BUG = 70  # an internal error
    INTERRUPTED = 130  # Ctrl-C, SIGINT
    PIPE = 141  # the reader closed the pipe
    TERMINATED = 143  # SIGTERM


class Terminated(BaseException):
    """The process received SIGTERM."""


class Stopped(Exception):
    """A signal or a lost process ended a command; `code` is its exit code."""

    def __init__(self, message: str, code: Exit):
        super().__init__(message)
        self.code = code


# Typer may contain its own copy of Click.
_ClickError: Any = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)
_CODES: dict[Any, Exit] = {
    BrokenPipeError: Exit.PIPE,
    (KeyboardInterrupt, typer.Abort): Exit.INTERRUPTED,
    Terminated: Exit.TERMINATED,
    # The user can correct a wrong path; other operating-system errors are the machine's.
    (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError): Exit.USAGE,
    (OSError, MemoryError): Exit.SYSTEM,
    (ValueError, ModuleNotFoundError, _ClickError): Exit.USAGE,
    (RuntimeError, FloatingPointError): Exit.FAILED,
}


def exit_of(error: BaseException) -> Exit:
    """Return the exit code for an error."""
    if isinstance(error, Stopped):
        return error.code
    code = next((code for kinds, code in _CODES.items() if isinstance(error, kinds)), Exit.BUG)
    # JAX raises a `RuntimeError` when memory is exhausted.
    return Exit.SYSTEM if code is Exit.FAILED and "RESOURCE_EXHAUSTED" in str(error) else code


def message_of(error: BaseException) -> str:
    """Return the message to print for an error."""
    code = exit_of(error)
    if isinstance(error, _ClickError):
        context = getattr(error, "ctx", None)
        path = "diracflow" if context is None else context.command_path
        return f"{cast(Any, error).format_message().rstrip('.')}. Try `{path} --help`."
    if code in (Exit.INTERRUPTED, Exit.TERMINATED) and not isinstance(error, Stopped):
        return f"{code.name.capitalize()}."
    if isinstance(error, MemoryError):
        return f"Out of memory. {error}".strip()
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    if code is Exit.BUG:
        lines = "".join(traceback.format_exception(error))
        return f"{lines}This is a bug in diracflow; please report the lines above."
    return str(error) or type(error).__name__


def result_stream() -> TextIO:
    """Return the stream for results."""
    return _RESULTS[-1] if _RESULTS else sys.stdout


def emit(result: str | Mapping[str, Any]) -> None:
    """Print a result: a text, or a mapping as JSON, where numbers that are not finite are null."""
    text = result if isinstance(result, str) else json_text(result, words=False)
    print(text, file=result_stream(), flush=True)


def text_table(columns: Sequence[tuple[str, str, str]], rows: Iterable[Mapping]) -> list[str]:
    """Return rows as aligned lines below headings; see `density.description` for `columns`."""
    from ..density.description import cells

    lines = cells(columns, rows)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]


def conclude(
    found: Mapping[str, Any], as_json: bool, text: str = "", *, failed: bool = False
) -> None:
    """Print the result of a command as JSON or as text, and exit with an error if it failed."""
    if as_json:
        emit(found)
    elif text:
        emit(text)
    if failed:
        raise typer.Exit(Exit.FAILED)


def talk(text: str) -> None:
    """Print a message that is not a result."""
    print(text, file=sys.stderr, flush=True)


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


@contextlib.contextmanager
def stoppable(message: Callable[[str], str]) -> Iterator[None]:
    """Turn signals into `Stopped`, with a message that depends on the cause."""
    from ..training.checkpointer import TrainingTerminated

    try:
        yield
    except KeyboardInterrupt as stop:
        raise Stopped(message("Interrupted"), Exit.INTERRUPTED) from stop
    except (TrainingTerminated, Terminated) as stop:
        raise Stopped(message("Terminated"), Exit.TERMINATED) from stop


def run_process(app: typer.Typer) -> None:
    """Run the command that the user typed, and end the process with its exit code.

    An error becomes one line on the standard error; with `--json` also an object on the standard
    output.
    """
    _open_streams()
    with _handlers():
        code = _run_command(app)
    try:
        sys.stdout.flush()
    except OSError:  # Python would print a traceback
        _discard_output()
    jax = sys.modules.get("jax")
    joined = jax is not None and jax.distributed.is_initialized()
    if joined and code not in (Exit.OK, Exit.INTERRUPTED, Exit.TERMINATED):
        # If only this process fails, JAX would wait for the others in its exit handler.
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _run_command(app: typer.Typer) -> int:
    error: BaseException
    try:
        code = app(prog_name="diracflow", standalone_mode=False)
        sys.stdout.flush()
        if code != Exit.INTERRUPTED:
            return int(code or Exit.OK)
        error = KeyboardInterrupt()
    except SystemExit as end:  # Typer exits by itself after a broken pipe
        _discard_output()
        return end.code if end.code in (0, 2) else Exit.PIPE
    except BaseException as caught:
        error = caught
    code = exit_of(error)
    if code is Exit.PIPE:
        _discard_output()
    elif type(error).__name__ == "NoArgsIsHelpError":
        # With Rich the help has been printed already; plain Click leaves it to the caller.
        if cast(Any, error).format_message():
            talk(cast(Any, error).format_message())
    else:
        message = message_of(error)
        with contextlib.suppress(OSError):  # the standard error may be closed, too
            if "--json" in sys.argv:
                emit({"error": message, "exit_code": int(code)})
            talk(f"diracflow: {message}")
    return code


def _open_streams() -> None:
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


def _discard_output() -> None:
    """Redirect the standard output to nowhere, after its reader has closed the pipe."""
    with contextlib.suppress(OSError, ValueError):
        handle = os.open(os.devnull, os.O_WRONLY)
        os.dup2(handle, sys.stdout.fileno())
        os.close(handle)


@contextlib.contextmanager
def _handlers() -> Iterator[None]:
    """Print each warning as one line, and turn SIGTERM into an exception.

    The exception lets commands remove incomplete files.
    """

    def show(message: Warning | str, *position: Any, **rest: Any) -> None:
        talk(f"diracflow: warning: {message}")

    def stop(number: int, frame: FrameType | None) -> None:
        raise Terminated

    with handling(stop, signal.SIGTERM), warnings.catch_warnings():
        warnings.showwarning = cast(Any, show)
        yield
