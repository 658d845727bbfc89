"""How a command ends: exit codes, and the one line that is said of an error.

The page `docs/statuses.md` lists them with causes and remedies.
"""

import enum
import traceback


class Exit(enum.IntEnum):
    """Exit codes of every command."""

    OK = 0
    FAILED = 1  # a check did not pass, or numerics ended the computation
    USAGE = 2  # arguments, files or settings that make no sense
    SYSTEM = 3  # the machine refused: permissions, space, memory
    LOST = 4  # another process of the same training has ended
    BUG = 70  # an error of diracflow's own
    INTERRUPTED = 130  # Ctrl-C, SIGINT
    PIPE = 141  # whoever read the output stopped
    TERMINATED = 143  # SIGTERM


class Terminated(BaseException):
    """The process was asked to end."""


class Stopped(Exception):
    """A signal ended a command; the message is for the user, the code for the shell."""

    def __init__(self, message: str, code: Exit):
        super().__init__(message)
        self.code = code


# A path that is not what the user takes it for is the user's to mend; other refusals are not.
_WRONG_PATHS = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError)


def exit_of(error: BaseException) -> Exit:
    """The exit code that an error leads to."""
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
    # JAX reports exhausted memory as an error of the computation.
    return Exit.SYSTEM if code is Exit.FAILED and "RESOURCE_EXHAUSTED" in str(error) else code


def message_of(error: BaseException) -> str:
    """What to say of an error."""
    if isinstance(error, KeyboardInterrupt):
        return "Interrupted."
    if isinstance(error, Terminated):
        return "Terminated."
    if isinstance(error, MemoryError):
        return f"Out of memory. {error}".strip()
    if isinstance(error, ModuleNotFoundError) and error.name == "matplotlib":
        return "Pictures need matplotlib: `pip install 'diracflow[view]'`."
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    if exit_of(error) is Exit.BUG:
        lines = "".join(traceback.format_exception(error))
        return f"{lines}This is an error of diracflow's own; please report the lines above."
    return str(error) or type(error).__name__
