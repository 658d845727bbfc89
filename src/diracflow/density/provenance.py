"""How a density came about."""

import dataclasses
from typing import Any

from ..planning.settings import Settings
from ..planning.subinterval_rule import leg_length
from ..training.history import Record
from ..training.status import Status


# Compared by identity: JAX hashes static fields on every call, and histories are long.
@dataclasses.dataclass(frozen=True, eq=False)
class Facts:
    """How a density came about."""

    settings: Settings
    preset: str
    asked_horizon: float
    status: Status
    seconds: float
    history: tuple[Record, ...]
    versions: dict[str, str]
    why_source: str = ""  # the reason for `settings.source`
    key: tuple[int, ...] = ()  # the data of the random key
    certificate: tuple[dict[str, Any], ...] = ()  # over time at landmarks; see `card`
    errors: tuple[dict[str, Any], ...] = ()  # against the exact density, where it was known
    boundaries: tuple[dict[str, Any], ...] = ()  # Feller's test at the ends of the domain
    leg: float | None = None  # what the flow was to be trained for, if not by horizon and settings
    memory: float = 0.0  # bytes that the training was predicted to take; files do not hold it

    def trained_for(self) -> float:
        """The time that the flow was to be trained for."""
        return leg_length(self.asked_horizon, self.settings) if self.leg is None else self.leg
