r"""The SDE of a density, and the start times at which the density can be used.

A density is learned for one start time $s$, or for a law of start times. Bridges and filters use it
again from later times $s' > s$. For a density of one start time this is correct only if the
coefficients do not depend on time.
"""

from typing import Any, TypedDict

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from ..sde.argument_checks import checked_number
from ..sde.chart import Chart
from ..sde.fingerprint import first_change
from ..sde.parameters import Params, checked_param, checked_params
from ..sde.sde import SDE
from ..transition.transition_density import AbstractTransitionDensity, require_density


class Conditioning(TypedDict, total=False):
    """Keyword arguments of a query for what the density depends on apart from `t` and `x0`."""

    params: Params | None
    start_time: float | None


def equation_of(density: AbstractTransitionDensity, sde: SDE | None) -> SDE:
    """Return `sde` if it is given, and the SDE of the density otherwise."""
    found = getattr(density, "sde", None) if sde is None else sde
    if found is None:
        raise ValueError(
            f"A {type(density).__name__} does not know its SDE; pass it: `sde=model.sde`."
        )
    if not isinstance(found, SDE):
        raise ValueError(f"`sde` must be a `diracflow.SDE`; got {type(found).__name__}.")
    if found.dim != density.dim:
        raise ValueError(
            f"`sde` must have {density.dim} components like the density; it has {found.dim}."
        )
    return found


def scalars(density: AbstractTransitionDensity, params: Params | None) -> dict[str, Array]:
    """Return one number for each parameter of the density."""
    require_density(density)
    values = checked_params(params, density.params, density.param_bounds)
    for name, value in zip(density.params, values, strict=True):
        if value.ndim:
            raise ValueError(f"`{name}` must be one number here; got shape {value.shape}.")
    return dict(zip(density.params, values, strict=True))


def conditioning_at(
    density: AbstractTransitionDensity, params: Params, begin: ArrayLike
) -> dict[str, Any]:
    """Return the keyword arguments of a query that starts at the time `begin`."""
    later = density.start_time is None
    return {"params": params or None, "start_time": begin if later else None}


def positive_time(density: AbstractTransitionDensity, gap: Float[Array, ""]) -> Float[Array, ""]:
    """Return a gap, or any other time if it is zero: densities are not defined at time zero."""
    return jnp.where(gap > 0, gap, min(1.0, density.horizon))


def require_one_time(name: str, value: Any) -> None:
    """Raise if `value` is an array of several times."""
    if np.ndim(value) != 0:
        raise ValueError(f"`{name}` must be one time; got shape {np.shape(value)}.")


def member_of(sde: SDE, params: Params) -> SDE:
    """Return the SDE with its parameters fixed, if it has any."""
    return sde.at(params) if sde.params else sde


def began_at(density: AbstractTransitionDensity, start: float | None, name: str) -> float:
    """Return the start time: the argument `start`, called `name`, or else that of the density."""
    if start is None and density.start_time is None:
        raise ValueError(f"This density depends on the start time; pass it: `{name}=...`.")
    known = 0.0 if density.start_time is None else density.start_time
    return known if start is None else checked_number(name, start)


def check_start_times(
    density: AbstractTransitionDensity, times: Float[ArrayLike, " n"], name: str
) -> None:
    """Raise if the density depends on the start time and was not learned for one of `times`."""
    if density.start_time is None:
        checked_param(name, times, {name: density.start_time_bounds}, "start time of a step in")


def chart_of(density: AbstractTransitionDensity, sde: SDE) -> Chart:
    """Return the coordinates in which the density was learned, or else those of the domain."""
    known = getattr(density, "chart", None)
    maps = sde.domain if known is None else known.maps
    same = [part.ends for part in maps] == [part.ends for part in sde.domain]
    return Chart(sde, maps if same else sde.domain)


def require_homogeneous(sde: SDE, start: float, span: float, x: Float[Array, "n d"]) -> None:
    """Raise if a coefficient at one of the points `x` changes within `span` after `start`."""
    changed = first_change(sde, start, span, x)
    if changed is not None:
        name, t = changed
        raise ValueError(
            f"`{name}` depends on time: it changes between t={start:g} and t={t:g}. The "
            f"density is valid for starts at t={start:g} only, and later starts are needed; "
            "learn it over a law of start times, `start_time=diracflow.Uniform(...)`."
        )


def require_reusable(
    density: AbstractTransitionDensity,
    params: Params,
    start: float,
    span: float,
    x: Float[Array, "n d"],
) -> None:
    """Raise if the density holds for one start time, and its SDE is known to depend on time."""
    sde = getattr(density, "sde", None)
    if sde is not None and density.start_time is not None:
        require_homogeneous(member_of(sde, params), start, span, x)
