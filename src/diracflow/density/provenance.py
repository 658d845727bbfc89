"""The provenance of a learned density: its plan, and the course of its training."""

import dataclasses
from typing import Any

from ..planning.plan import Plan
from ..training.state import Record, Status


# Compared by identity: JAX hashes static fields on every call, and histories are long.
@dataclasses.dataclass(frozen=True, eq=False)
class Provenance:
    """The plan and the course of the training of a density.

    **Arguments:**

    - `plan`: every choice of the training, with the reasons of the automatic ones.
    - `status`: how the training ended.
    - `seconds`: its wall time.
    - `history`: a record of each accepted step.
    - `versions`: of diracflow and the packages it uses.
    - `key`: the data of the random key.
    - `certificate`: the error bound over time, at two starts.
    - `errors`: against the exact density, where it is known.
    - `boundaries`: Feller's test at the ends of the domain.
    """

    plan: Plan
    status: Status
    seconds: float
    history: tuple[Record, ...]
    versions: dict[str, str]
    key: tuple[int, ...] = ()
    certificate: tuple[dict[str, Any], ...] = ()
    errors: tuple[dict[str, Any], ...] = ()
    boundaries: tuple[dict[str, Any], ...] = ()
