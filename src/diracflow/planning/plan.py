"""The plan of a training: every choice, and the reason for each automatic one."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from .settings import Settings

# How a plan presents its choices to people.
_GROUPS = {
    "method": ("method",),
    "flow": ("flow", "layers", "hidden", "networks", "bumps", "idle_dim", "parameters"),
    "source": ("source", "context", "basis"),
    "time": ("horizon", "legs", "reach", "starts", "tolerance"),
    "points": ("samples", "sampling", "devices", "chunk", "memory"),
}


@dataclasses.dataclass(frozen=True)
class Plan:
    """Every choice that `learn` makes for one problem.

    The fields from `tolerance` to `max_seconds` are those of `diracflow.Settings`, resolved.
    `print(plan)` shows the choices with their reasons.

    **Arguments:**

    - `preset`: the preset that settings were taken from.
    - `horizon`: the longest time.
    - `reach`: the time that the flow is trained for, `horizon / legs`.
    - `starts`: `"given"`, or `"widened"` if the law of starts was.
    - `parameters`: the number of parameters of the flow.
    - `devices`: the number of devices that points are divided over.
    - `chunk`: the number of rows that each device holds at once.
    - `memory`: predicted peak memory, in bytes.
    - `reasons`: why each automatic choice was made, by the name of the field.
    """

    preset: str
    horizon: float
    reach: float
    starts: str
    parameters: int
    devices: int
    chunk: int
    memory: float
    reasons: Mapping[str, str]
    tolerance: float
    method: str
    flow: str
    source: str
    context: str
    basis: str
    networks: str
    legs: int
    layers: int
    hidden: int
    bumps: int
    beta: float
    idle_dim: int
    masks: str
    samples: int
    sampling: str
    solver: str
    effective_share: float
    regularisation: float | str  # `"adaptive"`: by the held-out residual of each step
    momentum: float
    recall: float
    allowance: float
    first_time: float
    max_steps: int
    max_seconds: float

    def describe(self) -> dict[str, Any]:
        """Return the plan in plain Python."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return fields | {"reasons": dict(self.reasons)}

    def __str__(self) -> str:
        lines = [f"Plan of a training (preset {self.preset})"]
        shown = {"memory": f"{self.memory / 1e9:.2g} GB predicted at most"}
        for group, names in _GROUPS.items():
            lines.append(f"{group}:")
            for name in names:
                value = shown.get(name, getattr(self, name))
                value = f"{value:g}" if isinstance(value, float) else str(value)
                reason = f"  ({self.reasons[name]})" if name in self.reasons else ""
                lines.append(f"  {name:<12} {value}{reason}")
        return "\n".join(lines)

    @property
    def standardised(self) -> bool:
        """`True` if the flow works in the coordinates of the source."""
        return self.flow != "affine"


def plan_of(settings: Settings, **further: Any) -> Plan:
    """Return the plan of resolved settings and the other fields of `Plan`."""
    fields = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
    fields = {name: named(value) for name, value in fields.items()}
    if fields["regularisation"] is None:
        fields["regularisation"] = "adaptive"
    return Plan(**(fields | further))


def named(value: Any) -> Any:
    """Return the name of a user's object; other values as they are."""
    if value is None or isinstance(value, str | int | float):
        return value
    return getattr(value, "__name__", type(value).__name__)
