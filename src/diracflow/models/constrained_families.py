r"""Families of SDEs with positive states, each over a box of parameters.

The box is that of the ready-made problem; the equation itself takes any parameters for which it
makes sense, so `learn(family.sde, ..., params={...})` may ask for another one.
"""

import jax.numpy as jnp
from jaxtyping import Array

from ..sde.domains import Positive
from ..sde.laws import LogNormal, Uniform
from ..sde.sde import SDE
from .families import ExactGeometricBrownian
from .model import Model, origin_of
from .square_root import ExactCIR


def geometric_brownian_family() -> Model:
    r"""$dX = \mu X\,dt + \sigma X\,dW$ over a box of $\mu, \sigma$.

    The parameters are `rate` in [-0.1, 0.2] and `noise` in [0.1, 0.5].
    """
    sde = SDE(
        *(_proportional_drift, _proportional_noise, 1),
        params=("rate", "noise"),
        domain=Positive(),
        origin=origin_of("geometric_brownian_family"),
    )
    box = {"rate": Uniform(-0.1, 0.2), "noise": Uniform(0.1, 0.5)}
    starts, exact = LogNormal(0.0, 0.5).expand(1), ExactGeometricBrownian()
    return Model("geometric_brownian_family", sde, starts, 1.0, exact, box)


def cir_family() -> Model:
    r"""$dX = \kappa(m - X)\,dt + \sigma\sqrt X\,dW$ over a box of $\kappa, m, \sigma$.

    The parameters are `rate` in [1, 4], `level` in [0.2, 0.4] and `noise` in [0.1, 0.3]. Zero is
    not reached in this box, where $2\kappa m/\sigma^2$ is at least 4.4.
    """
    sde = SDE(
        *(_reverting_drift, _square_root_noise, 1),
        params=("rate", "level", "noise"),
        domain=Positive(),
        origin=origin_of("cir_family"),
    )
    box = {"rate": Uniform(1.0, 4.0), "level": Uniform(0.2, 0.4), "noise": Uniform(0.1, 0.3)}
    return Model("cir_family", sde, LogNormal(-1.2, 0.4).expand(1), 0.5, ExactCIR(), box)


def _proportional_drift(t: Array, x: Array, p: dict[str, Array]) -> Array:
    return p["rate"] * x


def _proportional_noise(t: Array, x: Array, p: dict[str, Array]) -> Array:
    return p["noise"] * x[:, None]


def _reverting_drift(t: Array, x: Array, p: dict[str, Array]) -> Array:
    return p["rate"] * (p["level"] - x)


def _square_root_noise(t: Array, x: Array, p: dict[str, Array]) -> Array:
    return p["noise"] * jnp.sqrt(x)[:, None]
