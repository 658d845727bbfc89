r"""How much memory a training takes, told before it runs.

The largest things are tables of one row for each of $N$ collocation points and one column for each
of $M$ parameters: the Jacobian, the slopes of the forcing, and what is made of them. At the start
two linearised equations are held while a third is made; nothing later takes more. Beside them
stand $M\times M$ matrices, the points that are worked on together, the path of the parameters, and
what JAX and its compiler take for any program.

Points are divided over devices, and so are tables; matrices are not. Rows that are streamed are
held for a chunk of points on each device, with a few numbers for every other point.
"""

import dataclasses
import os
from pathlib import Path

from ..galerkin.devices import Layout
from .settings import Settings

# Of float64 numbers.
_BYTES = 8
# Tables of N rows and M columns at once, and matrices of M rows and M columns.
_TABLES, _MATRICES = 12, 10
# Of streamed rows: tables of a chunk's rows at once, and numbers that every point keeps. Estimates
# by reading the code, not yet compared with peaks.
_CHUNK_TABLES, _PER_POINT = 6, 64
# Rows that are streamed together where the user does not say: enough for products of matrices to
# go at full speed.
CHUNK = 4096
# Python, JAX, its compiler and the compiled code.
_PROGRAM = 800e6
# Points that are worked on together, and numbers that each holds for each parameter and derivative.
_TOGETHER, _PER_PARAMETER = 512, 40
# Where control groups of Linux, new and old, state their limits.
_LIMITS = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)


def predicted_memory(
    settings: Settings, parameters: int, dim: int, layout: Layout | None = None
) -> float:
    """Bytes that a process takes at its peak, if it does nothing else than one training.

    `settings` must be sized and sampled. An estimate; see `docs/failures.md` for how good it was.
    """
    samples = settings.samples
    assert samples is not None  # settled with the number of parameters
    layout = layout or Layout()
    own = -(-samples // layout.devices)  # of each device
    tables = _TABLES * own * parameters
    if layout.chunk is not None:
        tables = _CHUNK_TABLES * min(layout.chunk, own) * parameters + _PER_POINT * own * (dim + 1)
    matrices = _MATRICES * parameters**2
    together = min(_TOGETHER, own) * _PER_PARAMETER * parameters * (dim + 1)
    # Parameters and two velocities, for every step, and once more when they are put together.
    path = 6 * min(settings.max_steps, 500) * parameters
    devices = layout.local_devices
    return _PROGRAM + _BYTES * (devices * (tables + matrices + together) + path)


def fitting_layout(
    layout: Layout, limit: float | None, settings: Settings, parameters: int, dim: int
) -> Layout:
    """The layout, with rows streamed where tables would take more memory than there is."""
    bound = available_memory() if limit is None else limit * 1e9
    if layout.chunk is not None or predicted_memory(settings, parameters, dim, layout) <= bound:
        return layout
    return dataclasses.replace(layout, chunk=CHUNK)


def available_memory() -> float:
    """Bytes that this process may come to take: of the machine, or of its control group."""
    limits = [_machine(), *map(_group, _LIMITS)]
    return min(limit for limit in limits if limit is not None)


def require_memory(needed: float, limit: float | None, settings: Settings, parameters: int) -> None:
    """Raise if a training would take more than `limit` gigabytes, or than there are."""
    bound = available_memory() if limit is None else limit * 1e9
    if needed <= bound:
        return
    whose = "this machine has" if limit is None else "`memory_limit` allows"
    raise ValueError(
        f"A training with {settings.samples} samples and {parameters} parameters takes about "
        f"{needed / 1e9:.3g} GB of memory; {whose} {bound / 1e9:.3g} GB. Lower `samples`, or "
        "`hidden` or `layers`, which determine the number of parameters, or raise `memory_limit`."
    )


def memory_text(needed: float, settings: Settings, parameters: int, layout: Layout) -> str:
    """What is said before a training."""
    where = f" on {layout.devices} devices" if layout.devices > 1 else ""
    held = f", {layout.chunk} rows at a time" if layout.chunk is not None else ""
    return (
        f"{parameters} parameters, {settings.samples} samples{where}{held}: about "
        f"{needed / 1e9:.2g} GB of memory at most, of {available_memory() / 1e9:.3g} GB."
    )


def _machine() -> float:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return float(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not known here
        return float("inf")


def _group(path: str) -> float | None:
    try:
        return float(Path(path).read_text())
    except (OSError, ValueError):  # no such group, or "max"
        return None
