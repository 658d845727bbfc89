"""The header of a model file: all that is not an array, in plain JSON."""

import dataclasses
import json
import math
from typing import Any

from ..planning.settings import Settings
from ..storage.fields import printable
from .learned import LearnedDensity
from .summary import equation_text

FORMAT = 11
# JSON has no such numbers; these words stand for them where they may occur.
WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
# Entries whose numbers may be such words: what was observed, not what the density is made of.
_OBSERVED = ("seconds", "certificate", "errors", "history")


def described(density: LearnedDensity) -> dict[str, Any]:
    """The header of a density's file."""
    facts, origin = density.facts, density.sde.origin
    settings = dataclasses.replace(facts.settings, legs=getattr(density, "legs", 1))
    header = {
        "format": FORMAT,
        "sde": {
            "dim": density.dim,
            "noise_dim": density.sde.noise_dim,
            "model": None if origin is None else origin[0],
            "arguments": None if origin is None else json.loads(origin[1]),
            "text": {name: printable(t) for name, t in equation_text(density.sde).items()},
            "domain": [part.describe() for part in density.sde.domain],
        },
        "maps": [part.describe() for part in density.chart.maps],
        "boundaries": list(facts.boundaries),
        "starts": density.starts.describe(),
        "start_time": density.start_time,  # or null, where `start_times` is its law
        **density.scope.describe(),
        "horizon": density.horizon,
        "asked_horizon": facts.asked_horizon,
        "leg": facts.trained_for(),
        "preset": facts.preset,
        "settings": _finite_fields(dataclasses.asdict(settings)),
        "why_source": facts.why_source,
        "status": facts.status.name,
        "seconds": facts.seconds,
        "versions": facts.versions,
        "key": list(facts.key),
        "certificate": list(facts.certificate),
        "errors": list(facts.errors),
        "history": [dataclasses.asdict(record) for record in facts.history],
    }
    return {**header, **{name: _worded(header[name]) for name in _OBSERVED}}


def with_numbers(header: dict[str, Any]) -> dict[str, Any]:
    """The header with numbers in place of the words that stand for them."""
    return {**header, **{name: _numbered(header[name]) for name in _OBSERVED}}


def settings_of(header: dict[str, Any]) -> Settings:
    """The settings, which check themselves."""
    fields = header["settings"]
    infinite = {n: math.inf for n in ("allowance", "max_seconds") if fields[n] is None}
    return Settings(**{**fields, **infinite})


# JSON has no infinity; of settings, these may be infinite.
def _finite_fields(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: None if value == math.inf else value for name, value in fields.items()}


def _worded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _worded(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_worded(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _numbered(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _numbered(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_numbered(inner) for inner in value]
    return WORDS.get(value, value) if isinstance(value, str) else value
