"""Which run a checkpoint is of.

A run is determined by its equation, laws, horizon, settings and key. All but the equation are
compared as they are; the coefficients of the equation, which are functions, by their values at
points drawn from the start law, at times up to the horizon.
"""

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from ..planning.settings import Settings
from ..sde.conditioning import ConditioningLaws
from ..sde.fingerprint import coefficients
from ..sde.sde import SDE

_PROBES = 64
# Rounding of another version; by more than this an equation is another.
_ROUNDING = 1e-9
# A run with other limits is the same one, and goes on when they are raised.
_LIMITS = ("max_steps", "max_seconds")
_NAMES = ("probe_tau", "probe_given", "probe_drift", "probe_diffusion")


@dataclasses.dataclass(frozen=True)
class Identity:
    """What determines a run: facts in plain Python, and values of its coefficients."""

    facts: Mapping[str, Any]
    probes: Mapping[str, np.ndarray]

    def differences(self, other: "Identity") -> list[str]:
        """In words, what another run has otherwise."""
        found = _differences("", self.facts, other.facts)
        # Points and times follow from the laws and the horizon, and so do not differ alone.
        return found or self._other_coefficients(other)

    def _other_coefficients(self, other: "Identity") -> list[str]:
        for name in ("drift", "diffusion"):
            mine, theirs = self.probes[f"probe_{name}"], other.probes[f"probe_{name}"]
            assert mine.shape == theirs.shape  # dimensions are among the facts
            scale = np.max(np.abs(mine))
            close = np.isclose(mine, theirs, rtol=_ROUNDING, atol=_ROUNDING * scale, equal_nan=True)
            if not close.all():
                worst = int(np.argmin(close.reshape(len(close), -1).all(axis=1)))
                at, tau = self.probes["probe_given"][worst], self.probes["probe_tau"][worst]
                return [
                    f"`sde`, whose {name} was {mine[worst].tolist()} and is now "
                    f"{theirs[worst].tolist()} from {at.tolist()}, {tau:g} after the start"
                ]
        return []


def identity(
    sde: SDE,
    laws: ConditioningLaws,
    start_time: float | None,
    horizon: float,
    preset: str,
    settings: Settings,
    key: PRNGKeyArray,
) -> Identity:
    """What determines a run with these arguments of `learn`; `settings` are all filled in."""
    chosen = {n: v for n, v in dataclasses.asdict(settings).items() if n not in _LIMITS}
    facts = {
        "sde": {
            "dim": sde.dim,
            "noise_dim": sde.noise_dim,
            "params": list(sde.params),
            "domain": [part.describe() for part in sde.domain],
        },
        "starts": laws.starts.describe(),
        **laws.describe(),
        "start_time": start_time,
        "horizon": horizon,
        "preset": preset,
        "settings": chosen,
        "key": [str(jr.key_impl(key)), *np.asarray(jr.key_data(key)).ravel().tolist()],
    }
    with jax.enable_x64(True):
        given = laws.law.sample(jr.key(1), (_PROBES,))
        tau = jnp.linspace(0, horizon, _PROBES)
        values = (tau, given, *coefficients(sde, start_time, tau, given))
        probes = {n: np.asarray(v, np.float64) for n, v in zip(_NAMES, values, strict=True)}
    return Identity(_plain(facts), probes)


def identity_from(facts: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Identity:
    """The identity that a file holds."""
    return Identity(facts, {name: arrays[name] for name in _NAMES})


def _plain(value: Any) -> Any:
    """As it comes back from JSON, which has no infinity."""
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return json.loads(json.dumps(value))


def _differences(prefix: str, old: Any, new: Any) -> list[str]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        names = sorted(old.keys() | new.keys())
        pairs = [(f"{prefix}.{n}" if prefix else n, old.get(n), new.get(n)) for n in names]
        return [text for pair in pairs for text in _differences(*pair)]
    return [] if old == new else [f"`{prefix}`, which was {old} and is now {new}"]
