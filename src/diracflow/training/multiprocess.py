"""Processes that train together, and how they stay together.

All of them run the same loop. Numbers that decide where it goes (a length, an error, whether time
is over) are the first process's, so that processors which round differently, and clocks which run
differently, cannot lead two processes apart. A signal to one of them ends all of them, after the
step at hand.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import jax
import numpy as np
from jax.experimental import multihost_utils

from ..galerkin.devices import Layout

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# What a failing collective says of itself, whatever carries it.
_SIGNS = ("gloo", "nccl", "collective", "coordination", "peer", "socket", "connection", "heartbeat")


class ProcessLost(RuntimeError):
    """Another process of a training has ended, or cannot be reached any more."""


class Crew:
    """A process alone: its own numbers count, and signals are none of its business."""

    first = True

    def agree(self, *numbers: float) -> tuple[float, ...]:
        """The first process's numbers."""
        return numbers

    def told(self, make: Callable[[], bytes]) -> bytes:
        """What the first process makes; an error of its own is raised in all of them."""
        return make()

    def heed(self) -> None:
        """Act on a signal to any process; called between steps."""

    @contextmanager
    def together(self) -> Iterator[None]:
        """Within this context signals wait for `heed`, and lost processes are named."""
        yield


class SeveralProcesses(Crew):
    """One of several."""

    def __init__(self) -> None:
        self.first = jax.process_index() == 0
        self._asked = 0
        self._before: dict[int, object] = {}

    def agree(self, *numbers: float) -> tuple[float, ...]:
        return tuple(np.asarray(multihost_utils.broadcast_one_to_all(np.array(numbers))).tolist())

    def told(self, make: Callable[[], bytes]) -> bytes:
        payload, error = b"", None
        if self.first:
            try:
                payload = make()
            except Exception as raised:  # told to all, then raised here
                payload, error = str(raised).encode(), raised
        failed, size = map(int, self.agree(error is not None, len(payload)))
        # One byte more, for there may be none.
        buffer = np.zeros(size + 1, np.uint8)
        if self.first:
            buffer[:size] = np.frombuffer(payload, np.uint8)
        told = np.asarray(multihost_utils.broadcast_one_to_all(buffer), np.uint8)[:size].tobytes()
        if error is not None:
            raise error
        if failed:
            raise ValueError(told.decode())
        return told

    def heed(self) -> None:
        asked = int(np.max(multihost_utils.process_allgather(np.array(self._asked))))
        if asked:
            self._let_go()
            signal.raise_signal(asked)  # to whoever handled it before

    @contextmanager
    def together(self) -> Iterator[None]:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in _SIGNALS}
            for number in _SIGNALS:
                signal.signal(number, self._note)
        try:
            with naming_lost_processes():
                yield
        finally:
            self._let_go()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._asked:  # a second one does not wait
            self._let_go()
            signal.raise_signal(number)
        self._asked = number

    def _let_go(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._before = {}


@contextmanager
def naming_lost_processes() -> Iterator[None]:
    """Errors of collectives as `ProcessLost`."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if not any(sign in str(error).lower() for sign in _SIGNS):
            raise
        raise ProcessLost(
            "A process of this training has ended, or cannot be reached any more "
            f"({str(error).splitlines()[0][:200]}). Start all processes again with the same "
            "command; with a checkpoint they go on from there."
        ) from error


def _leave_signals_to_python() -> None:
    # JAX would take SIGTERM for itself, and tell no one who does not ask.
    jax.config.update("jax_enable_preemption_service", False)


def crew_of(layout: Layout) -> Crew:
    """The processes that a layout's devices belong to: this one, or all."""
    if layout.processes == {jax.process_index()}:
        return Crew()
    missing = jax.process_count() - len(layout.processes)
    if missing:
        raise ValueError(
            "`devices` must belong to this process or to all of them; "
            f"{missing} of {jax.process_count()} processes have none among those given."
        )
    return SeveralProcesses()


def join(
    coordinator: str | None,
    processes: int | None,
    process_id: int | None,
    *,
    automatic: bool = False,
    patience: int = 300,
    heartbeat: int = 100,
) -> None:
    """Join the other processes, before JAX has computed anything.

    **Arguments:**

    - `coordinator`: `HOST:PORT` of the process number 0, which listens there.
    - `processes`, `process_id`: how many there are, and which this one is, from 0 on.
    - `automatic`: take all of these from the launcher (Slurm, Open MPI, a TPU pod, Kubernetes).
    - `patience`: seconds to wait for the others at the start.
    - `heartbeat`: seconds after which a silent process counts as lost.
    """
    if automatic:
        if (coordinator, processes, process_id) != (None, None, None):
            raise ValueError(
                "`--distributed` takes everything from the launcher; leave out `--coordinator`, "
                "`--processes` and `--process-id`, or `--distributed`."
            )
        _leave_signals_to_python()
        jax.distributed.initialize(
            initialization_timeout=patience, heartbeat_timeout_seconds=heartbeat
        )
        return
    if coordinator is None and processes is None and process_id is None:
        return
    if coordinator is None or processes is None or process_id is None:
        raise ValueError(
            "Several processes need `--coordinator HOST:PORT`, `--processes P` and "
            "`--process-id I`, all three of them."
        )
    host, colon, port = coordinator.rpartition(":")
    if not (host and colon and port.isascii() and port.isdigit() and 0 < int(port) < 2**16):
        raise ValueError(
            "`--coordinator` must be HOST:PORT, where the process number 0 listens, such as "
            f"10.0.0.1:8476; got {coordinator!r}."
        )
    if processes < 1:
        raise ValueError(f"`--processes` must be at least 1; got {processes}.")
    if not 0 <= process_id < processes:
        raise ValueError(
            f"`--process-id` must lie between 0 and {processes - 1}, for there are {processes} "
            f"processes; got {process_id}."
        )
    _leave_signals_to_python()
    # Without detection, which would ask the launcher for what is left open.
    jax.distributed.initialize(
        coordinator,
        processes,
        process_id,
        cluster_detection_method="deactivate",
        initialization_timeout=patience,
        heartbeat_timeout_seconds=heartbeat,
        coordinator_bind_address=os.environ.get("JAX_COORDINATOR_BIND_ADDRESS"),
    )
