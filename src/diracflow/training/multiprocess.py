"""Training in several processes.

All processes run the same loop. Numbers on which its control flow depends (a length, an error,
whether the time limit is reached) are broadcast from the first process. Otherwise differences in
rounding or between clocks could make the processes diverge. A signal to one process ends all of
them, after the current step.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from ..galerkin.devices import Layout
from ..storage.signals import handling

# Words in the error messages of failed collectives, for all transports.
_COLLECTIVE_WORDS = (
    *("gloo", "nccl", "collective", "coordination"),
    *("peer", "socket", "connection", "heartbeat"),
)


class ProcessLost(RuntimeError):
    """Another process of a training has ended, or cannot be reached any more."""


class ProcessGroup:
    """A single process: nothing is communicated, and signals keep their handlers."""

    first = True

    def agree(self, *numbers: float) -> tuple[float, ...]:
        """Return the numbers of the first process."""
        return numbers

    def broadcast(self, make: Callable[[], bytes]) -> bytes:
        """Return what `make` returns in the first process; its errors are raised in all."""
        return make()

    def raise_signals(self) -> None:
        """Raise a signal that any process has received; called between steps."""

    @contextmanager
    def deferred_signals(self) -> Iterator[None]:
        """Defer signals until `raise_signals`, and raise `ProcessLost` if a process ends."""
        yield


class SeveralProcesses(ProcessGroup):
    """One of several processes."""

    def __init__(self) -> None:
        self.first = jax.process_index() == 0
        self._received = 0  # number of the signal
        self._handlers = ExitStack()

    def agree(self, *numbers: float) -> tuple[float, ...]:
        return tuple(np.asarray(multihost_utils.broadcast_one_to_all(np.array(numbers))).tolist())

    def broadcast(self, make: Callable[[], bytes]) -> bytes:
        payload, error = b"", None
        if self.first:
            try:
                payload = make()
            except Exception as raised:  # sent to all processes, then raised here
                payload, error = str(raised).encode(), raised
        failed, size = map(int, self.agree(error is not None, len(payload)))
        # Arrays of size zero cannot be broadcast, hence one more byte.
        buffer = np.zeros(size + 1, np.uint8)
        if self.first:
            buffer[:size] = np.frombuffer(payload, np.uint8)
        sent = np.asarray(multihost_utils.broadcast_one_to_all(buffer), np.uint8)[:size].tobytes()
        if error is not None:
            raise error
        if failed:
            raise ValueError(sent.decode())
        return sent

    def raise_signals(self) -> None:
        received = int(np.max(multihost_utils.process_allgather(np.array(self._received))))
        if received:
            self._handlers.close()
            signal.raise_signal(received)

    @contextmanager
    def deferred_signals(self) -> Iterator[None]:
        with self._handlers, detect_lost_processes():
            self._handlers.enter_context(handling(self._defer, signal.SIGINT, signal.SIGTERM))
            yield

    def _defer(self, number: int, frame: FrameType | None) -> None:
        if self._received:  # a second signal takes effect at once
            self._handlers.close()
            signal.raise_signal(number)
        self._received = number


@contextmanager
def detect_lost_processes() -> Iterator[None]:
    """Raise `ProcessLost` when a collective fails."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if not any(word in str(error).lower() for word in _COLLECTIVE_WORDS):
            raise
        raise ProcessLost(
            "A process of this training has ended, or cannot be reached any more "
            f"({str(error).splitlines()[0][:200]}). Start all processes again with the same "
            "command; with a checkpoint the training resumes."
        ) from error


def process_group(layout: Layout) -> ProcessGroup:
    """Return the processes that own the devices of a layout: this one, or all."""
    if layout.processes == {jax.process_index()}:
        return ProcessGroup()
    missing = jax.process_count() - len(layout.processes)
    if missing:
        raise ValueError(
            "`devices` must belong to this process or to all processes; "
            f"{missing} of {jax.process_count()} processes own none of the given devices."
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
    """Connect to the other processes, before JAX has computed anything.

    **Arguments:**

    - `coordinator`: `HOST:PORT` on which process 0 listens.
    - `processes`: number of processes.
    - `process_id`: index of this process, from 0.
    - `automatic`: take all of these from the launcher (Slurm, Open MPI, a TPU pod, Kubernetes).
    - `patience`: seconds to wait for the other processes at the start.
    - `heartbeat`: seconds without a sign of life after which a process counts as lost.
    """
    address = (coordinator, processes, process_id)
    detection: dict[str, Any] = {}
    if automatic and address != (None, None, None):
        raise ValueError(
            "`--distributed` takes everything from the launcher; leave out `--coordinator`, "
            "`--processes` and `--process-id`, or `--distributed`."
        )
    if not automatic:
        if address == (None, None, None):
            return
        if coordinator is None or processes is None or process_id is None:
            raise ValueError(
                "Several processes need `--coordinator HOST:PORT`, `--processes P` and "
                "`--process-id I`, all three of them."
            )
        _check_address(coordinator, processes, process_id)
        # Detection would take missing values from the launcher.
        detection["cluster_detection_method"] = "deactivate"
        detection["coordinator_bind_address"] = os.environ.get("JAX_COORDINATOR_BIND_ADDRESS")
    # JAX's preemption service swallows SIGTERM.
    jax.config.update("jax_enable_preemption_service", False)
    jax.distributed.initialize(
        *address,
        initialization_timeout=patience,
        heartbeat_timeout_seconds=heartbeat,
        **detection,
    )


def _check_address(coordinator: str, processes: int, process_id: int) -> None:
    host, colon, port = coordinator.rpartition(":")
    if not (host and colon and port.isascii() and port.isdigit() and 0 < int(port) < 2**16):
        raise ValueError(
            "`--coordinator` must be HOST:PORT, on which process 0 listens, such as "
            f"10.0.0.1:8476; got {coordinator!r}."
        )
    if processes < 1:
        raise ValueError(f"`--processes` must be at least 1; got {processes}.")
    if not 0 <= process_id < processes:
        raise ValueError(
            f"`--process-id` must lie between 0 and {processes - 1}, because there are "
            f"{processes} processes; got {process_id}."
        )
