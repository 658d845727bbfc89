"""Exit codes, and the one-line message of an error.

The page `docs/statuses.md` lists the codes with causes and remedies.
"""

import enum
import traceback


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


# The user can correct a wrong path; other operating-system errors are the machine's.
_WRONG_PATHS = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError)


def exit_of(error: BaseException) -> Exit:
    """Return the exit code for an error."""
    if isinstance(error, Stopped):
        return error.code
    kinds: list[tuple[tuple[type[BaseException], ...], Exit]] = [
        ((BrokenPipeError,), Exit.PIPE),
        ((KeyboardInterrupt,), Exit.INTERRUPTED),
        ((Terminated,), Exit.TERMINATED),
        (_WRONG_PATHS, Exit.USAGE),
        ((OSError, MemoryError), Exit.SYSTEM),
        ((ValueError, ModuleNotFoundError), Exit.USAGE),
        ((RuntimeError, FloatingPointError), Exit.FAILED),
    ]
    code = next((code for types, code in kinds if isinstance(error, types)), Exit.BUG)
    # JAX raises a `RuntimeError` when memory is exhausted.
    return Exit.SYSTEM if code is Exit.FAILED and "RESOURCE_EXHAUSTED" in str(error) else code


def message_of(error: BaseException) -> str:
    """Return the message to print for an error."""
    if isinstance(error, KeyboardInterrupt):
        return "Interrupted."
    if isinstance(error, Terminated):
        return "Terminated."
    if isinstance(error, MemoryError):
        return f"Out of memory. {error}".strip()
    if isinstance(error, ModuleNotFoundError) and error.name == "matplotlib":
        return "Figures need matplotlib: `pip install 'diracflow[view]'`."
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    if exit_of(error) is Exit.BUG:
        lines = "".join(traceback.format_exception(error))
        return f"{lines}This is a bug in diracflow; please report the lines above."
    return str(error) or type(error).__name__
