"""What decides on the last bits of a result, beside the run itself."""

import hashlib
import os
import pathlib
import platform
from typing import Any

import jax

# They change the order in which sums are taken, and so the rounding.
_VARIABLES = ("XLA_FLAGS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def versions() -> dict[str, str]:
    """Versions of what determines the numbers."""
    from importlib.metadata import version

    packages = {name: version(name) for name in ("diracflow", "jax", "jaxlib", "equinox")}
    return {**packages, "python": platform.python_version()}


def environment() -> dict[str, Any]:
    """Versions, threads and the machine, in plain Python."""
    from importlib.metadata import version

    return {
        **versions(),
        **{name: version(name) for name in ("numpy", "scipy")},
        "device": jax.default_backend(),
        "processor": _processor(),
        "threads": _threads(),
        "processes": jax.process_count(),
        "devices": jax.device_count(),
        **{name: os.environ.get(name, "") for name in _VARIABLES},
    }


def _threads() -> int:
    """Cores that this process may run on: compiled code takes a thread for each."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _processor() -> str:
    """The processor's name and its instructions, for which code is compiled."""
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    pairs = [line.partition(":") for line in text.splitlines()]
    found = {name.strip(): value.strip() for name, _, value in reversed(pairs)}
    name = found.get("model name") or platform.processor() or platform.machine()
    flags = found.get("flags") or found.get("Features") or ""
    return f"{name}, instructions {hashlib.sha256(flags.encode()).hexdigest()[:8]}"
