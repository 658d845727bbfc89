r"""Prediction of the memory that a training needs.

The largest arrays are tables with a row for each of $N$ collocation points and a column for each of
$M$ parameters: the Jacobian, the derivative of the forcing, and products of them. The first step
needs most: it holds two linearised equations while it assembles a third. There are also
$M\times M$ matrices, the points that are evaluated together, the trajectory of the parameters, and
the memory that JAX and its compiler need for any program.

Points and tables are divided over devices; matrices are not. Streamed rows are held for one chunk
of points on each device, with a few numbers for every other point.
"""

import dataclasses
import os
from pathlib import Path

from ..galerkin.devices import Layout
from .settings import Settings

# Bytes of a float64 number.
_BYTES = 8
# Tables of N rows and M columns held at once, and matrices of M rows and M columns.
_TABLES, _MATRICES = 12, 10
# For streamed rows: tables of a chunk's rows held at once, and numbers kept for every point. These
# are estimates from the code, not compared with measured peaks.
_CHUNK_TABLES, _PER_POINT = 6, 64
# Default chunk of streamed rows: large enough for matrix products at full speed.
CHUNK = 4096
# Python, JAX, its compiler and compiled programs.
_PROGRAM = 800e6
# Points evaluated together, and numbers that each holds for each parameter and derivative.
_TOGETHER, _PER_PARAMETER = 512, 40
# Files in which Linux control groups (v2 and v1) state their limits.
_LIMITS = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)


def predicted_memory(
    settings: Settings, parameters: int, dim: int, layout: Layout | None = None
) -> float:
    """Return the predicted peak memory of a process that runs one training, in bytes.

    All sizes in `settings` must be resolved. The prediction has not been compared with measurements
    over a range of sizes.
    """
    samples = settings.samples
    assert samples is not None  # resolved with the number of parameters
    layout = layout or Layout()
    own = -(-samples // layout.devices)  # of each device
    tables = _TABLES * own * parameters
    if layout.chunk is not None:
        tables = _CHUNK_TABLES * min(layout.chunk, own) * parameters + _PER_POINT * own * (dim + 1)
    matrices = _MATRICES * parameters**2
    together = min(_TOGETHER, own) * _PER_PARAMETER * parameters * (dim + 1)
    # Parameters and two velocities of every step, and a copy when they are stacked.
    path = 6 * min(settings.max_steps, 500) * parameters
    devices = layout.local_devices
    return _PROGRAM + _BYTES * (devices * (tables + matrices + together) + path)


def fitting_layout(
    layout: Layout, limit: float | None, settings: Settings, parameters: int, dim: int
) -> Layout:
    """Return the layout, with streamed rows if tables do not fit into memory."""
    bound = available_memory() if limit is None else limit * 1e9
    if layout.chunk is not None or predicted_memory(settings, parameters, dim, layout) <= bound:
        return layout
    return dataclasses.replace(layout, chunk=CHUNK)


def available_memory() -> float:
    """Return the bytes available to this process, on the machine or in its control group."""
    limits = [_machine(), *map(_group, _LIMITS)]
    return min(limit for limit in limits if limit is not None)


def require_memory(needed: float, limit: float | None, settings: Settings, parameters: int) -> None:
    """Raise if a training needs more than `limit` gigabytes, or more than are available."""
    bound = available_memory() if limit is None else limit * 1e9
    if needed <= bound:
        return
    whose = "this machine has" if limit is None else "`memory_limit` allows"
    raise ValueError(
        f"A training with {settings.samples} samples and {parameters} parameters needs about "
        f"{needed / 1e9:.3g} GB of memory; {whose} {bound / 1e9:.3g} GB. Lower `samples`, or "
        "`hidden` or `layers`, which determine the number of parameters, or raise `memory_limit`."
    )


def memory_text(needed: float, settings: Settings, parameters: int, layout: Layout) -> str:
    """Return the line that announces a training."""
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
