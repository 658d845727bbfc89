r"""The SDE behind a density, and whether the density may be used from later times on.

A density is learned from one start time $s$. Used again from $s' > s$, as bridges and filters do,
it stands for the transition from $s'$ only if the coefficients do not depend on time.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..problem.chart import Chart
from ..problem.sde import SDE
from ..problem.transition import AbstractTransitionDensity

# Shares of the time span at which coefficients are compared; no two differ by a simple fraction,
# so that no period goes unnoticed.
_SHARES = (0.137, 0.382, 0.719, 1.0)


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


def chart_of(density: AbstractTransitionDensity, sde: SDE) -> Chart:
    """The coordinates that the density was learned in, else those of the domain by itself."""
    known = getattr(density, "chart", None)
    same = known is not None and [part.ends for part in known.maps] == [
        part.ends for part in sde.domain
    ]
    return Chart(sde, known.maps if known is not None and same else sde.domain)


def start_of(density: AbstractTransitionDensity) -> float:
    """The time from which a density was learned; exact ones start at zero."""
    return getattr(density, "start_time", 0.0)


def require_homogeneous(sde: SDE, start: float, span: float, x: Float[Array, "n d"]) -> None:
    """Raise if a coefficient at one of the points `x` changes over `span` from `start` on."""
    for name, coefficient in (("drift", sde.drift), ("diffusion", sde.diffusion)):
        at = jax.vmap(coefficient, (None, 0))
        first = np.asarray(at(jnp.asarray(start, x.dtype), x))
        for share in _SHARES:
            t = start + share * span
            values = np.asarray(at(jnp.asarray(t, x.dtype), x))
            # Equal operations on equal numbers: a coefficient without time is equal to the bit.
            if not np.array_equal(values, first, equal_nan=True):
                raise ValueError(
                    f"`{name}` depends on time: it changes between t={start:g} and t={t:g}. The "
                    f"density holds for starts at t={start:g} only and is needed from later ones; "
                    "time-dependent coefficients are not supported here."
                )
