r"""Ready-made SDEs, each with its start law, its horizon and, where known, its exact density."""

import inspect
import json
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, ArrayLike

from ..sde.argument_checks import checked_count
from ..sde.laws import Normal, Uniform
from ..sde.sde import SDE, Origin
from ..transition.transition_density import AbstractTransitionDensity
from .constrained_families import cir_family, geometric_brownian_family
from .constrained_models import (
    cir,
    ckls,
    geometric_brownian,
    heston,
    jacobi,
    lotka_volterra,
)
from .families import ExactOrnsteinUhlenbeck, ExactSeasonal
from .gaussian import ExactBenes, ExactLinear, ExactSheared
from .model import Model, origin_of, require_finite, require_positive


def brownian(dim: int = 2) -> Model:
    r"""Standard Brownian motion $dX = dW$."""
    dim = checked_count("dim", dim)
    rate, level, noise = np.zeros((dim, dim)), np.zeros(dim), np.eye(dim)
    sde = _linear_sde(rate, level, noise, origin_of("brownian", dim=dim))
    return Model(
        "brownian", sde, Normal(0.0, 1.0).expand(dim), 1.0, ExactLinear(rate, level, noise)
    )


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
    a, m, sigma = (
        _matrix("rate", rate, dim),
        _filled("level", level, dim),
        _matrix("noise", noise, dim),
    )
    if a.shape != (dim, dim):
        raise ValueError(f"`rate` must be a ({dim}, {dim}) matrix; got shape {a.shape}.")
    if not np.any(sigma):
        raise ValueError("`noise` must not vanish: without it there is no density.")
    origin = origin_of(
        "ornstein_uhlenbeck", dim=dim, rate=a.tolist(), level=m.tolist(), noise=sigma.tolist()
    )
    sde = _linear_sde(a, m, sigma, origin)
    return Model(
        "ornstein_uhlenbeck", sde, Normal(m, 1.0).expand(dim), 1.0, ExactLinear(a, m, sigma)
    )


def ornstein_uhlenbeck_family() -> Model:
    r"""$dX = \kappa(m - X)\,dt + \sigma\,dW$ over a box of $\kappa, m, \sigma$.

    The parameters are `rate` in [0.5, 2], `level` in [-0.5, 0.5] and `noise` in [0.3, 1].
    """
    sde = SDE(
        *(_family_drift, _family_diffusion, 1),
        params=("rate", "level", "noise"),
        origin=origin_of("ornstein_uhlenbeck_family"),
    )
    box = {"rate": Uniform(0.5, 2.0), "level": Uniform(-0.5, 0.5), "noise": Uniform(0.3, 1.0)}
    starts = Normal(0.0, 1.0).expand(1)
    return Model("ornstein_uhlenbeck_family", sde, starts, 1.0, ExactOrnsteinUhlenbeck(), box)


def seasonal(
    rate: float = 2.0, level: float = 0.0, amplitude: float = 1.0, noise: float = 0.5
) -> Model:
    r"""$dX = \kappa(m + a\sin(2\pi t) - X)\,dt + \sigma\,dW$, started at any time of a year."""
    constants = rate, level, amplitude, noise
    require_positive(rate=rate, noise=noise)
    require_finite(level=level, amplitude=amplitude)
    sde = SDE(
        Partial(_seasonal_drift, rate, level, amplitude),
        Partial(_constant, np.array([[noise]])),
        1,
        origin=origin_of("seasonal", rate=rate, level=level, amplitude=amplitude, noise=noise),
    )
    exact = ExactSeasonal(*map(float, constants))
    starts = Normal(level, 1.0).expand(1)
    return Model("seasonal", sde, starts, 1.0, exact, start_time=Uniform(0.0, 1.0).expand(1))


def benes(angle: float = np.pi / 3, dim: int = 2) -> Model:
    r"""The rotated Beneš SDE $dX = R\tanh(R^\top X)\,dt + R\,dW$.

    From one start the density splits into $2^d$ modes. $R$ turns every two neighbouring axes by
    `angle`, one pair after another.
    """
    dim = checked_count("dim", dim)
    require_finite(angle=angle)
    rotation = np.eye(dim)
    plane = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    for first in range(dim - 1):
        rotation[:, first : first + 2] = rotation[:, first : first + 2] @ plane
    sde = SDE(
        Partial(_benes_drift, rotation),
        Partial(_constant, rotation),
        dim,
        origin=origin_of("benes", angle=angle, dim=dim),
    )
    return Model("benes", sde, Normal(0.0, 0.75).expand(dim), 3.0, ExactBenes(rotation))


def sheared(dim: int = 6, shear: float = 0.75, seed: int = 0) -> Model:
    r"""The sheared anisotropic Brownian motion $X = Y + a\,Y_1^2 e_2$, $Y = y_0 + BW$.

    $B = Q^\top\mathrm{diag}(\lambda, 1/\lambda)$ with $\lambda_i$ uniform on (1, 1.1) and $Q$ the
    orthogonal factor of a Gaussian matrix, both drawn with `seed`.
    """
    require_finite(shear=shear)
    checked_count("seed", seed, least=0)
    if checked_count("dim", dim) % 2:
        raise ValueError(f"`dim` must be even and at least 2; got {dim}.")
    rng = np.random.default_rng(seed)
    orthogonal = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
    stretch = rng.uniform(1.0, 1.1, dim // 2)
    mixing = orthogonal.T * np.concatenate([stretch, 1 / stretch])
    sde = SDE(
        Partial(_sheared_drift, mixing, shear),
        Partial(_sheared_diffusion, mixing, shear),
        dim,
        origin=origin_of("sheared", dim=dim, shear=shear, seed=seed),
    )
    return Model("sheared", sde, Normal(0.0, 1.0).expand(dim), 1.0, ExactSheared(mixing, shear))


def linear_langevin(stiffness: float = 1.0, friction: float = 1.0, noise: float = 1.0) -> Model:
    r"""A damped oscillator, $dq = v\,dt$, $dv = (-kq - \gamma v)\,dt + \sigma\,dW$.

    Noise enters the velocity only; the density is Gaussian.
    """
    require_positive(noise=noise)
    require_finite(stiffness=stiffness, friction=friction)
    rate, level = np.array([[0.0, -1.0], [stiffness, friction]]), np.zeros(2)
    column = np.array([[0.0], [noise]])
    origin = origin_of("linear_langevin", stiffness=stiffness, friction=friction, noise=noise)
    sde, exact = _linear_sde(rate, level, column, origin), ExactLinear(rate, level, column)
    return Model("linear_langevin", sde, Normal(0.0, 1.0).expand(2), 2.0, exact)


def langevin(friction: float = 1.0, noise: float = 1.0) -> Model:
    r"""A particle in the double well $V = (q^2-1)^2/4$, with noise on the velocity only.

    $dq = v\,dt$, $dv = (-V'(q) - \gamma v)\,dt + \sigma\,dW$.
    """
    coefficients = {"stiffness": -1.0, "cubic": 1.0, "friction": friction}
    origin = origin_of("langevin", friction=friction, noise=noise)
    return _oscillator("langevin", coefficients, noise, origin)


def duffing(
    stiffness: float = 1.0, cubic: float = 1.0, friction: float = 0.3, noise: float = 0.5
) -> Model:
    r"""Duffing's oscillator, $dq = v\,dt$, $dv = (-kq - \kappa q^3 - \gamma v)\,dt + \sigma\,dW$.

    With positive $k$ the spring hardens; with negative $k$ there are two wells.
    """
    coefficients = {"stiffness": stiffness, "cubic": cubic, "friction": friction}
    return _oscillator(
        "duffing", coefficients, noise, origin_of("duffing", **coefficients, noise=noise)
    )


def van_der_pol(mu: float = 1.0, noise: float = 0.5) -> Model:
    r"""Van der Pol's limit cycle with noise on both components.

    $dx = y\,dt + \sigma\,dW_1$, $dy = (\mu(1 - x^2)y - x)\,dt + \sigma\,dW_2$.
    """
    require_positive(noise=noise)
    require_finite(mu=mu)
    sde = SDE(
        Partial(_cycle_drift, float(mu)),
        Partial(_constant, noise * np.eye(2)),
        2,
        origin=origin_of("van_der_pol", mu=mu, noise=noise),
    )
    return Model("van_der_pol", sde, Normal(0.0, 1.0).expand(2), 2.0, None)


def double_well(dim: int = 1) -> Model:
    r"""Two wells, on a line or in the plane.

    In one dimension $dX = (X - X^3)\,dt + 0.7\,dW$; in two $dX = -\nabla V\,dt + dW$ with
    $V = (x^2-1)^2 + y^2/2 + 0.3xy$.
    """
    if checked_count("dim", dim) > 2:
        raise ValueError(f"`dim` must be 1 or 2; got {dim}.")
    drift, noise, spread, horizon = (
        (_well_drift, 0.7, 1.0, 5.0) if dim == 1 else (_plane_drift, 1.0, 0.8, 3.0)
    )
    sde = SDE(
        Partial(drift),
        Partial(_constant, noise * np.eye(dim)),
        dim,
        origin=origin_of("double_well", dim=dim),
    )
    return Model("double_well", sde, Normal(0.0, spread).expand(dim), horizon, None)


def double_well_chain(
    dim: int = 4, height: float = 1.0, coupling: float = 1.0, noise: float = 1.0
) -> Model:
    r"""A chain of double wells, each tied to its neighbours: $dX = -\nabla V\,dt + \sigma\,dW$.

    $V = \tfrac{a}{4}\sum_i (x_i^2-1)^2 + \tfrac{k}{2}\sum_{i<d} (x_i - x_{i+1})^2$, a scalar field
    on a lattice of $d$ sites. Without coupling its density is a product of those of single wells.

    **Arguments:**

    - `dim`: the number of sites $d$.
    - `height`: $a$; the barrier between the wells of a free site is $a/4$.
    - `coupling`: $k$, zero or more.
    - `noise`: $\sigma$.
    """
    dim = checked_count("dim", dim)
    require_positive(height=height, noise=noise)
    require_finite(coupling=coupling)
    if coupling < 0:
        raise ValueError(f"`coupling` must be zero or more; got {coupling}.")
    sde = SDE(
        Partial(_chain_drift, float(height), float(coupling)),
        Partial(_constant, noise * np.eye(dim)),
        dim,
        origin=origin_of(
            "double_well_chain", dim=dim, height=height, coupling=coupling, noise=noise
        ),
    )
    return Model("double_well_chain", sde, Normal(0.0, 1.0).expand(dim), 1.0, None)


MODELS: dict[str, Callable[..., Model]] = {
    "brownian": brownian,
    "ornstein_uhlenbeck": ornstein_uhlenbeck,
    "ornstein_uhlenbeck_family": ornstein_uhlenbeck_family,
    "seasonal": seasonal,
    "benes": benes,
    "sheared": sheared,
    "geometric_brownian": geometric_brownian,
    "geometric_brownian_family": geometric_brownian_family,
    "cir": cir,
    "cir_family": cir_family,
    "ckls": ckls,
    "jacobi": jacobi,
    "lotka_volterra": lotka_volterra,
    "heston": heston,
    "linear_langevin": linear_langevin,
    "langevin": langevin,
    "duffing": duffing,
    "van_der_pol": van_der_pol,
    "double_well": double_well,
    "double_well_chain": double_well_chain,
}


def model(name: str, **arguments: object) -> Model:
    """The built-in model of that name."""
    if not isinstance(name, str) or name not in MODELS:
        raise ValueError(f"No built-in model is called {name!r}; there are {', '.join(MODELS)}.")
    known = inspect.signature(MODELS[name]).parameters
    unknown = sorted(set(arguments) - set(known))
    if unknown:
        raise ValueError(
            f"The model {name} has no argument {unknown[0]!r}; it has {', '.join(known) or 'none'}."
        )
    return MODELS[name](**arguments)


def exact_of(sde: SDE) -> AbstractTransitionDensity | None:
    """The exact density of an SDE, if it is a built-in model's and known."""
    return None if sde.origin is None else model(sde.origin[0], **json.loads(sde.origin[1])).exact


def _linear_sde(rate: np.ndarray, level: np.ndarray, noise: np.ndarray, origin: Origin) -> SDE:
    return SDE(
        Partial(_linear_drift, rate, level), Partial(_constant, noise), len(level), origin=origin
    )


def _oscillator(name: str, coefficients: dict[str, float], noise: float, origin: Origin) -> Model:
    require_positive(noise=noise)
    require_finite(**coefficients)
    sde = SDE(
        Partial(_spring_drift, **{key: float(value) for key, value in coefficients.items()}),
        Partial(_constant, np.array([[0.0], [noise]])),
        2,
        origin=origin,
    )
    return Model(name, sde, Normal(0.0, 1.0).expand(2), 2.0, None)


def _spring_drift(t: Array, x: Array, *, stiffness: Array, cubic: Array, friction: Array) -> Array:
    position, velocity = x
    force = -stiffness * position - cubic * position**3 - friction * velocity
    return jnp.stack([velocity, force])


def _cycle_drift(mu: Array, t: Array, x: Array) -> Array:
    return jnp.stack([x[1], mu * (1 - x[0] ** 2) * x[1] - x[0]])


def _well_drift(t: Array, x: Array) -> Array:
    return x - x**3


def _plane_drift(t: Array, x: Array) -> Array:
    return -jnp.stack([4 * x[0] * (x[0] ** 2 - 1) + 0.3 * x[1], x[1] + 0.3 * x[0]])


def _chain_drift(height: Array, coupling: Array, t: Array, x: Array) -> Array:
    pull = coupling * jnp.diff(x)  # of each site on the one before it
    end = jnp.zeros_like(x[:1])
    wells = height * (x - x**3)
    return wells + jnp.concatenate([pull, end]) - jnp.concatenate([end, pull])


def _linear_drift(rate: Array, level: Array, t: Array, x: Array) -> Array:
    return -rate @ (x - level)


def _family_drift(t: Array, x: Array, p: dict[str, Array]) -> Array:
    return p["rate"] * (p["level"] - x)


def _family_diffusion(t: Array, x: Array, p: dict[str, Array]) -> Array:
    return p["noise"] * jnp.ones((1, 1))


def _seasonal_drift(rate: Array, level: Array, amplitude: Array, t: Array, x: Array) -> Array:
    return rate * (level + amplitude * jnp.sin(2 * jnp.pi * t) - x)


def _benes_drift(rotation: Array, t: Array, x: Array) -> Array:
    return rotation @ jnp.tanh(rotation.T @ x)


def _sheared_drift(mixing: Array, shear: Array, t: Array, x: Array) -> Array:
    return jnp.zeros_like(x).at[1].set(shear * (mixing[0] @ mixing[0]))


def _sheared_diffusion(mixing: Array, shear: Array, t: Array, x: Array) -> Array:
    return jnp.asarray(mixing).at[1].add(2 * shear * x[0] * mixing[0])


def _constant(value: Array, t: Array, x: Array) -> Array:
    return jnp.asarray(value)


def _matrix(name: str, value: ArrayLike, dim: int) -> np.ndarray:
    array = _numbers(name, value)
    matrix = np.diag(_filled(name, array, dim)) if array.ndim < 2 else array
    if matrix.ndim != 2 or matrix.shape[0] != dim or not np.all(np.isfinite(matrix)):
        raise ValueError(f"`{name}` must be finite with {dim} rows; got shape {array.shape}.")
    return matrix


def _numbers(name: str, value: ArrayLike) -> np.ndarray:
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"`{name}` must hold real numbers; got {value!r}.") from None


def _filled(name: str, value: ArrayLike, dim: int) -> np.ndarray:
    array = _numbers(name, value)
    if array.shape not in ((), (dim,)) or not np.all(np.isfinite(array)):
        raise ValueError(
            f"`{name}` must be a finite scalar or have length {dim}; got shape {array.shape}."
        )
    return np.broadcast_to(array, (dim,)).copy()
