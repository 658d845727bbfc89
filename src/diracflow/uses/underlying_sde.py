r"""The SDE behind a density, and whether the density may be used from later times on.

A density is learned from one start time $s$, or over a law of them. In the first case, used again
from $s' > s$ as bridges and filters do, it stands for the transition from $s'$ only if the
coefficients do not depend on time.
"""

from jaxtyping import Array, ArrayLike, Float

from ..sde.argument_checks import checked_number
from ..sde.chart import Chart
from ..sde.parameters import Params, checked_param, checked_params
from ..sde.sde import SDE
from ..sde.time_homogeneity import first_change
from ..transition.transition_density import AbstractTransitionDensity, require_density


def equation_of(density: AbstractTransitionDensity, sde: SDE | None) -> SDE:
    """`sde` if given, else the equation that the density was learned for."""
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
    """One number for each parameter of a density."""
    require_density(density)
    values = checked_params(params, density.params, density.param_bounds)
    for name, value in zip(density.params, values, strict=True):
        if value.ndim:
            raise ValueError(f"`{name}` must be one number here; got shape {value.shape}.")
    return dict(zip(density.params, values, strict=True))


def member_of(sde: SDE, params: Params) -> SDE:
    """The equation at some parameters, unless it is known at these only."""
    return sde.at(params) if sde.params else sde


def began_at(density: AbstractTransitionDensity, start: float | None, name: str) -> float:
    """When the process starts: as the user says, or as the density knows."""
    if start is None and density.start_time is None:
        raise ValueError(
            f"This density depends on the time at which the process starts; give it: `{name}=...`."
        )
    known = 0.0 if density.start_time is None else density.start_time
    return known if start is None else checked_number(name, start)


def check_start_times(
    density: AbstractTransitionDensity, times: Float[ArrayLike, " n"], name: str
) -> None:
    """Raise, naming what they are, where a density that depends on start times is not known."""
    if density.start_time is None:
        checked_param(name, times, {name: density.start_time_bounds}, "start time of a step in")


def chart_of(density: AbstractTransitionDensity, sde: SDE) -> Chart:
    """The coordinates that the density was learned in, else those of the domain by itself."""
    known = getattr(density, "chart", None)
    same = known is not None and [part.ends for part in known.maps] == [
        part.ends for part in sde.domain
    ]
    return Chart(sde, known.maps if known is not None and same else sde.domain)


def require_homogeneous(sde: SDE, start: float, span: float, x: Float[Array, "n d"]) -> None:
    """Raise if a coefficient at one of the points `x` changes over `span` from `start` on."""
    changed = first_change(sde, start, span, x)
    if changed is not None:
        name, t = changed
        raise ValueError(
            f"`{name}` depends on time: it changes between t={start:g} and t={t:g}. The "
            f"density holds for starts at t={start:g} only and is needed from later ones; "
            "learn it over a law of start times, `start_time=diracflow.Uniform(...)`."
        )
