"""Trainings that are stopped by a signal, and resumed by the same command."""

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .exits import Exit, Stopped, Terminated


def checked_checkpoint(checkpoint: Path | None, resume: bool) -> None:
    """Raise if there is nothing to resume where `--resume` asks for it."""
    from ..training.checkpoint_folder import holds_checkpoint

    if resume and checkpoint is None:
        raise ValueError("`--resume` needs `--checkpoint DIR`, the directory to resume from.")
    if resume and checkpoint is not None and not holds_checkpoint(checkpoint):
        raise ValueError(
            f"There is no training to resume in {checkpoint}. Leave out `--resume` to start one."
        )


@contextmanager
def stoppable(checkpoint: Path | None) -> Iterator[None]:
    """Within this context a signal becomes `Stopped`, which says how to go on."""
    from ..training.multiprocess import ProcessLost
    from ..training.termination import TrainingTerminated

    try:
        yield
    except ProcessLost as lost:
        raise Stopped(_message(str(lost).rstrip("."), checkpoint), Exit.LOST) from lost
    except KeyboardInterrupt as stop:
        raise Stopped(_message("Interrupted", checkpoint), Exit.INTERRUPTED) from stop
    except (TrainingTerminated, Terminated) as stop:
        raise Stopped(_message("Terminated", checkpoint), Exit.TERMINATED) from stop


def left_to_the_first() -> bool:
    """Whether this process writes and tells what was learned: the first of several, or the only.

    Processes part here, so that none waits for what only one of them does.
    """
    import jax

    first = jax.process_index() == 0
    if jax.distributed.is_initialized():
        jax.distributed.shutdown()
    return first


def leave(code: int) -> None:
    """End the process: at once, where it fails alone, for JAX would wait for the others."""
    jax = sys.modules.get("jax")
    joined = jax is not None and jax.distributed.is_initialized()
    if joined and code not in (Exit.OK, Exit.INTERRUPTED, Exit.TERMINATED):
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _message(what: str, checkpoint: Path | None) -> str:
    from ..training.checkpoint_folder import holds_checkpoint

    if checkpoint is None:
        return f"{what}. With `--checkpoint DIR` the same command could have gone on from here."
    command = shlex.join(["diracflow", *sys.argv[1:]])
    if holds_checkpoint(checkpoint):
        return f"{what}. The training is kept in {checkpoint}; to resume it: {command}"
    return f"{what} before there was anything to keep; to start again: {command}"
