"""The identity of a run, by which a checkpoint is recognised, and its environment.

A run is determined by its SDE, laws, horizon, plan and key. All but the coefficients of the
SDE are compared as they are. The coefficients are compared by their fingerprints. The environment
determines how results are rounded.
"""

import dataclasses
import hashlib
import os
import pathlib
import platform
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import jax
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from ..planning.plan import Plan
from ..sde.fingerprint import Fingerprint, fingerprint
from ..sde.problem import Problem
from ..storage.strict_json import plain

# These change the order of summation, and so the rounding.
_VARIABLES = ("XLA_FLAGS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def versions() -> dict[str, str]:
    """Return the versions of the packages that compute the results."""
    packages = {name: version(name) for name in ("diracflow", "jax", "jaxlib", "equinox")}
    return {**packages, "python": platform.python_version()}


def environment() -> dict[str, Any]:
    """Return versions, threads and the machine, in plain Python values."""
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


# Relative difference at which an SDE is another one; another version may round differently.
_ROUNDING = 1e-9
# A run with other limits is the same run, and resumes when they are raised. Devices, and rows held
# at once, change results by rounding only.
_IRRELEVANT = ("max_steps", "max_seconds", "memory", "devices", "chunk", "reasons")


@dataclasses.dataclass(frozen=True)
class Identity:
    """A description of a run in plain Python values, and the fingerprint of its SDE."""

    description: Mapping[str, Any]
    fingerprint: Fingerprint

    def differences(self, other: "Identity") -> list[str]:
        """Describe each difference of another run."""
        found = _differences("", self.description, other.description)
        if found:
            return found
        # The points follow from the laws and the horizon, which agree.
        coefficients = self.fingerprint.difference(other.fingerprint, _ROUNDING)
        return [f"`sde`: {coefficients}"] if coefficients else []


def identity(problem: Problem, plan: Plan, key: PRNGKeyArray) -> Identity:
    """Return the identity of a run."""
    sde, laws = problem.sde, problem.laws
    description = {
        "sde": {
            "dim": sde.dim,
            "noise_dim": sde.noise_dim,
            "params": list(sde.params),
            "domain": [part.describe() for part in sde.domain],
        },
        "starts": laws.starts.describe(),
        **laws.describe(),
        "start_time": problem.start_time,
        "plan": {n: v for n, v in plan.describe().items() if n not in _IRRELEVANT},
        "key": [str(jr.key_impl(key)), *np.asarray(jr.key_data(key)).ravel().tolist()],
    }
    probes = fingerprint(sde, laws.law, problem.start_time, problem.horizon)
    return Identity(plain(description), probes)


def _differences(prefix: str, old: Any, new: Any) -> list[str]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        names = sorted(old.keys() | new.keys())
        pairs = [(f"{prefix}.{n}" if prefix else n, old.get(n), new.get(n)) for n in names]
        return [text for pair in pairs for text in _differences(*pair)]
    return [] if old == new else [f"`{prefix}`, which was {old} and is now {new}"]
