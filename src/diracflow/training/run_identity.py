"""The identity of a run, by which a checkpoint is recognised.

A run is determined by its SDE, laws, horizon, plan and key. All but the coefficients of the
SDE are compared as they are. The coefficients are compared by their fingerprints.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from ..planning.plan import Plan
from ..sde.fingerprint import Fingerprint, fingerprint
from ..sde.problem import Problem
from ..storage.strict_json import plain

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
