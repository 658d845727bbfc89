"""What a user may set about a training, and the presets."""

import dataclasses
import numbers
from typing import Any

from ..galerkin.collocation import CUBES

# Ways to order the components before each pair of layers; see `build.orders`.
MASKS = ("fixed", "permuted")


@dataclasses.dataclass(frozen=True)
class Settings:
    """Typed settings of one training.

    **Arguments:**

    - `layers`: number of coupling layers, even.
    - `hidden`: hidden size of the GRU cell in each layer.
    - `beta`: bound of the scale, which lies within `1 ± beta`.
    - `idle_dim`: components kept idle by the odd layers; half of them by default.
    - `masks`: `"fixed"` splits the components the same way in all layers, as the paper does;
        `"permuted"` lets every pair of layers split them differently.
    - `samples`: collocation points for each evaluation of the velocity.
    - `sampling`: `"sobol"` (scrambled) or `"montecarlo"`.
    - `regularisation`: Tikhonov parameter relative to the mean eigenvalue of the Gram matrix.
    - `tolerance`: error allowed in one step, as the root mean square change of the log-density.
    - `first_time`: share of the horizon up to which the source alone is the density.
    - `max_steps`, `max_seconds`: limits after which training stops with what it has.
    """

    layers: int = 10
    hidden: int = 4
    beta: float = 0.9
    idle_dim: int | None = None
    masks: str = "permuted"
    samples: int = 4096
    sampling: str = "sobol"
    regularisation: float = 1e-10
    tolerance: float = 1e-3
    first_time: float = 1e-4
    max_steps: int = 2000
    max_seconds: float = float("inf")

    def __post_init__(self) -> None:
        self._whole("layers", least=2)
        if self.layers % 2:
            raise ValueError(
                "`layers` must be even: layers come in pairs that together move every component; "
                f"got {self.layers}."
            )
        self._whole("hidden", least=1)
        self._whole("samples", least=2)
        self._whole("max_steps", least=1)
        if self.idle_dim is not None:
            self._whole("idle_dim", least=1)
        self._real("beta", 0, 1)
        self._real("regularisation", 0, 1)
        self._real("tolerance", 0, float("inf"))
        self._real("first_time", 0, 1)
        if self.max_seconds != float("inf"):
            self._real("max_seconds", 0, float("inf"))
        _one_of("masks", self.masks, MASKS)
        _one_of("sampling", self.sampling, tuple(CUBES))

    def _whole(self, name: str, *, least: int) -> None:
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
            raise ValueError(f"`{name}` must be a whole number, at least {least}; got {value!r}.")
        object.__setattr__(self, name, int(value))

    def _real(self, name: str, low: float, high: float) -> None:
        value = getattr(self, name)
        real = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if not real or not low < float(value) < high:
            raise ValueError(f"`{name}` must lie strictly between {low} and {high}; got {value!r}.")
        object.__setattr__(self, name, float(value))


def _one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"`{name}` must be one of {', '.join(choices)}; got {value!r}.")


# Until other layers are there, `accurate` differs from `paper` by its masks alone.
PRESETS = {
    "quick": Settings(layers=6, samples=2048, tolerance=2e-3, regularisation=1e-7),
    "accurate": Settings(),
    "paper": Settings(masks="fixed"),
}


def settings_for(preset: str, **changes: Any) -> Settings:
    """The settings of a preset with some of them changed."""
    _one_of("preset", preset, tuple(PRESETS))
    known = [field.name for field in dataclasses.fields(Settings)]
    unknown = sorted(set(changes) - set(known))
    if unknown:
        raise ValueError(f"Unknown setting {unknown[0]!r}; there are {', '.join(known)}.")
    return dataclasses.replace(PRESETS[preset], **changes)
