"""The environment of a run, which determines how its results are rounded."""

import hashlib
import os
import pathlib
import platform
from typing import Any

import jax

# These change the order of summation, and so the rounding.
_VARIABLES = ("XLA_FLAGS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def versions() -> dict[str, str]:
    """Return the versions of the packages that compute the results."""
    from importlib.metadata import version

    packages = {name: version(name) for name in ("diracflow", "jax", "jaxlib", "equinox")}
    return {**packages, "python": platform.python_version()}


def environment() -> dict[str, Any]:
    """Return versions, threads and the machine, in plain Python values."""
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
    """Return the number of cores of this process; compiled code uses one thread for each."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _processor() -> str:
    """Return the name of the processor and a hash of its instruction set."""
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    pairs = [line.partition(":") for line in text.splitlines()]
    found = {name.strip(): value.strip() for name, _, value in reversed(pairs)}
    name = found.get("model name") or platform.processor() or platform.machine()
    flags = found.get("flags") or found.get("Features") or ""
    return f"{name}, instructions {hashlib.sha256(flags.encode()).hexdigest()[:8]}"
