"""Training commands that a signal stops, and that the same command resumes."""

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .exits import Exit, Stopped, Terminated


def require_checkpoint(checkpoint: Path | None, resume: bool) -> None:
    """Raise an error if `--resume` was given and there is nothing to resume."""
    from ..training.checkpoint_file import holds_checkpoint

    if resume and checkpoint is None:
        raise ValueError("`--resume` needs `--checkpoint DIR`, the directory to resume from.")
    if resume and checkpoint is not None and not holds_checkpoint(checkpoint):
        raise ValueError(
            f"There is no training to resume in {checkpoint}. Leave out `--resume` to start one."
        )


@contextmanager
def stoppable(checkpoint: Path | None) -> Iterator[None]:
    """Turn signals and lost processes into `Stopped`, with a message on how to resume."""
    from ..training.checkpointer import TrainingTerminated
    from ..training.multiprocess import ProcessLost

    try:
        yield
    except ProcessLost as lost:
        raise Stopped(_message(str(lost).rstrip("."), checkpoint), Exit.LOST) from lost
    except KeyboardInterrupt as stop:
        raise Stopped(_message("Interrupted", checkpoint), Exit.INTERRUPTED) from stop
    except (TrainingTerminated, Terminated) as stop:
        raise Stopped(_message("Terminated", checkpoint), Exit.TERMINATED) from stop


def leave_process_group() -> bool:
    """Disconnect from the other processes; return `True` in the one that writes the results.

    The processes disconnect here because only the first of them does what follows.
    """
    import jax

    first = jax.process_index() == 0
    if jax.distributed.is_initialized():
        jax.distributed.shutdown()
    return first


def exit_process(code: int) -> None:
    """End the process with an exit code."""
    jax = sys.modules.get("jax")
    joined = jax is not None and jax.distributed.is_initialized()
    if joined and code not in (Exit.OK, Exit.INTERRUPTED, Exit.TERMINATED):
        # If only this process fails, JAX would wait for the others in its exit handler.
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _message(cause: str, checkpoint: Path | None) -> str:
    from ..training.checkpoint_file import holds_checkpoint

    if checkpoint is None:
        return f"{cause}. Use `--checkpoint DIR` to make the training resumable."
    command = shlex.join(["diracflow", *sys.argv[1:]])
    if holds_checkpoint(checkpoint):
        return f"{cause}. The training is saved in {checkpoint}; to resume it: {command}"
    return f"{cause} before the first checkpoint; to start again: {command}"
