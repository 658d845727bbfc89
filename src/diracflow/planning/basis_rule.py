"""Along which axes source and flow work, and the rule that chooses them."""

import dataclasses

import jax.random as jr
import numpy as np

from ..equation.moving_frame import Basis
from ..sde.laws import AbstractLaw
from ..sde.quasi_random import sobol
from ..sde.sde import SDE
from ..source.separation import CoefficientJacobians, coefficient_jacobians, separating_basis
from .settings import Settings

# Share of the squares off the diagonal, of what varies of the drift's slopes, above which turning
# is not worth it. On the rotated Beneš process nothing is left; on the chain of double wells,
# whose axes are the right ones already, there is nothing to begin with.
_WORTH = 0.5
# Variation of slopes times horizon below which a drift counts as linear.
_LINEAR = 0.1
# Draws of the start law at which slopes are looked at.
_DRAWS = 128


def settled_basis(
    settings: Settings,
    sde: SDE,
    starts: AbstractLaw,
    start_time: float | None,
    horizon: float,
    degenerate: bool = False,
) -> Settings:
    """The settings with a basis in place of `"auto"`.

    In the plane, and where networks are given the path, that is the state's axes: networks are
    shared there, and find others by themselves.
    """
    if settings.basis == "separated" and degenerate:
        raise ValueError(
            '`basis="separated"` needs noise in every component: axes are chosen in units of it. '
            "Here the covariance `diffusion @ diffusion.T` is singular at a start. Use "
            '`basis="axes"`, or leave it to "auto".'
        )
    if settings.basis != "auto":
        return settings
    turned = False
    able = settings.flow == "monotone" and settings.context != "path"
    if able and sde.dim > 2 and not degenerate:
        at = start_slopes(sde, starts, start_time)
        varies = np.sqrt(np.mean(np.sum((at.drift - at.drift.mean(axis=0)) ** 2, axis=(1, 2))))
        turned = varies * horizon >= _LINEAR and separating_basis(at)[1] < _WORTH
    return dataclasses.replace(settings, basis="separated" if turned else "axes")


def start_slopes(sde: SDE, starts: AbstractLaw, start_time: float | None) -> CoefficientJacobians:
    """Jacobians of the coefficients at draws of the start law."""
    draws = np.asarray(starts.transport(sobol(jr.key(0), _DRAWS, starts.dim or sde.dim)))
    return coefficient_jacobians(sde, start_time, draws)


def basis_of(settings: Settings, at: CoefficientJacobians) -> Basis | None:
    """The axes that settled settings ask for; `None` for those of the state."""
    return separating_basis(at)[0] if settings.basis == "separated" else None
