r"""Built-in models with linear drift and constant noise, whose densities are Gaussian."""

import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, ArrayLike

from ..sde.argument_checks import checked_count
from ..sde.laws import Normal, Uniform, real_array
from ..sde.sde import SDE
from .catalogue import Model, built_in, require_positive
from .exact_densities import ExactLinear, ExactOrnsteinUhlenbeck, ExactSeasonal


@built_in
def brownian(dim: int = 2) -> Model:
    r"""Standard Brownian motion $dX = dW$.

    **Arguments:**

    - `dim`: dimension of the state.
    """
    dim = checked_count("dim", dim)
    return _linear("brownian", np.zeros((dim, dim)), np.zeros(dim), np.eye(dim), 1.0)


@built_in
def ornstein_uhlenbeck(
    dim: int = 2, rate: ArrayLike = 1.0, level: ArrayLike = 0.0, noise: ArrayLike = 1.0
) -> Model:
    r"""The linear SDE $dX = -A(X - m)\,dt + \sigma\,dW$.

    **Arguments:**

    - `dim`: dimension of the state.
    - `rate`: $A$, a scalar, a vector (diagonal) or a full matrix.
    - `level`: $m$, a scalar or a vector.
    - `noise`: $\sigma$, a scalar, a vector (diagonal) or a full matrix with `dim` rows.
    """
    dim = checked_count("dim", dim)
    a, sigma = _matrix("rate", rate, dim), _matrix("noise", noise, dim)
    if a.shape != (dim, dim):
        raise ValueError(f"`rate` must be a ({dim}, {dim}) matrix; got shape {a.shape}.")
    if not np.any(sigma):
        raise ValueError("`noise` must not be zero: without noise there is no density.")
    return _linear("ornstein_uhlenbeck", a, _filled("level", level, dim), sigma, 1.0)


@built_in
def ornstein_uhlenbeck_family() -> Model:
    r"""$dX = \kappa(m - X)\,dt + \sigma\,dW$ over a box of $\kappa, m, \sigma$.

    The parameters are `rate` in [0.5, 2], `level` in [-0.5, 0.5] and `noise` in [0.3, 1].
    """
    sde = SDE(family_reversion, _family_diffusion, 1, params=("rate", "level", "noise"))
    box = {"rate": Uniform(0.5, 2.0), "level": Uniform(-0.5, 0.5), "noise": Uniform(0.3, 1.0)}
    starts = Normal(0.0, 1.0).expand(1)
    return Model("ornstein_uhlenbeck_family", sde, starts, 1.0, ExactOrnsteinUhlenbeck(), box)


@built_in
def seasonal(
    rate: float = 2.0, level: float = 0.0, amplitude: float = 1.0, noise: float = 0.5
) -> Model:
    r"""$dX = \kappa(m + a\sin(2\pi t) - X)\,dt + \sigma\,dW$, with start times in [0, 1].

    **Arguments:**

    - `rate`: $\kappa$, positive.
    - `level`: $m$.
    - `amplitude`: $a$.
    - `noise`: $\sigma$, positive.
    """
    require_positive(rate=rate, noise=noise)
    sde = SDE(Partial(_seasonal_drift, rate, level, amplitude), np.array([[noise]]), 1)
    exact = ExactSeasonal(*map(float, (rate, level, amplitude, noise)))
    starts = Normal(level, 1.0).expand(1)
    return Model("seasonal", sde, starts, 1.0, exact, start_time=Uniform(0.0, 1.0).expand(1))


@built_in
def linear_langevin(stiffness: float = 1.0, friction: float = 1.0, noise: float = 1.0) -> Model:
    r"""A damped oscillator, $dq = v\,dt$, $dv = (-kq - \gamma v)\,dt + \sigma\,dW$.

    Noise enters only the velocity.

    **Arguments:**

    - `stiffness`: $k$.
    - `friction`: $\gamma$.
    - `noise`: $\sigma$, positive.
    """
    require_positive(noise=noise)
    rate = np.array([[0.0, -1.0], [stiffness, friction]])
    return _linear("linear_langevin", rate, np.zeros(2), np.array([[0.0], [noise]]), 2.0)


def _linear(
    name: str, rate: np.ndarray, level: np.ndarray, noise: np.ndarray, horizon: float
) -> Model:
    sde = SDE(Partial(_linear_drift, rate, level), noise, len(level))
    starts = Normal(level, 1.0).expand(len(level))
    return Model(name, sde, starts, horizon, ExactLinear(rate, level, noise))


def _linear_drift(rate: Array, level: Array, t: Array, x: Array) -> Array:
    return -rate @ (x - level)


def family_reversion(t: Array, x: Array, p: dict[str, Array]) -> Array:
    r"""Return the drift $\kappa(m - x)$ for the parameters `rate` and `level`."""
    return p["rate"] * (p["level"] - x)


def _family_diffusion(t: Array, x: Array, p: dict[str, Array]) -> Array:
    return p["noise"] * jnp.ones((1, 1))


def _seasonal_drift(rate: Array, level: Array, amplitude: Array, t: Array, x: Array) -> Array:
    return rate * (level + amplitude * jnp.sin(2 * jnp.pi * t) - x)


def _matrix(name: str, value: ArrayLike, dim: int) -> np.ndarray:
    array = real_array(name, value)
    matrix = np.diag(_filled(name, array, dim)) if array.ndim < 2 else array
    if matrix.ndim != 2 or matrix.shape[0] != dim or not np.all(np.isfinite(matrix)):
        raise ValueError(f"`{name}` must be finite with {dim} rows; got shape {array.shape}.")
    return matrix


def _filled(name: str, value: ArrayLike, dim: int) -> np.ndarray:
    array = real_array(name, value)
    if array.shape not in ((), (dim,)) or not np.all(np.isfinite(array)):
        raise ValueError(
            f"`{name}` must be a finite scalar or have length {dim}; got shape {array.shape}."
        )
    return np.broadcast_to(array, (dim,)).copy()
