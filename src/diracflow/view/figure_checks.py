"""Checks of the arguments of figures."""

from types import UnionType
from typing import Any

import numpy as np
from jaxtyping import ArrayLike, Float

from ..sde.argument_checks import checked_number, checked_point
from ..transition.transition_density import require_density


def require_kind(name: str, value: object, kind: type | UnionType, maker: str) -> None:
    """Raise unless `value` is of the type that the function `maker` returns."""
    if not isinstance(value, kind):
        raise ValueError(f"`{name}` must come from `{maker}`; got {type(value).__name__}.")


def require_components(dim: int | None, **densities: Any) -> None:
    """Raise unless all are densities with `dim` components, or with more than two if `None`."""
    for name, density in densities.items():
        require_density(density, name)
        if density.dim != dim and not (dim is None and density.dim > 2):
            wanted = "more than two" if dim is None else str(dim)
            raise ValueError(
                f"This figure needs states with {wanted} components; `{name}` has {density.dim}."
            )


def checked_times(times: Any) -> list[float]:
    """Return one time or more."""
    listed = [checked_number("times", t) for t in np.atleast_1d(times)]
    if not listed:
        raise ValueError("`times` must contain at least one time.")
    return listed


def checked_start(x0: Float[ArrayLike, " d"], dim: int) -> Float[np.ndarray, " d"]:
    """Return one start."""
    start = np.asarray(checked_point("x0", x0, dim))
    if start.ndim != 1:
        raise ValueError(f"`x0` must be one start of shape ({dim},); got shape {start.shape}.")
    return start
