r"""Built-in models with positive or bounded components.

The families are defined over a box of parameters. `learn(family.sde, ..., params={...})` accepts
other laws of the parameters as well.
"""

import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array

from ..sde.domains import Interval, Positive, Real
from ..sde.laws import LogNormal, Normal, Product, Uniform
from ..sde.sde import SDE
from .catalogue import Model, built_in, require_positive
from .exact_densities import ExactGeometricBrownian, Fixed
from .linear_models import family_reversion
from .square_root import ExactCIR


@built_in
def geometric_brownian(rate: float = 0.05, noise: float = 0.3) -> Model:
    r"""Geometric Brownian motion $dX = \mu X\,dt + \sigma X\,dW$.

    **Arguments:**

    - `rate`: $\mu$.
    - `noise`: $\sigma$, positive.
    """
    require_positive(noise=noise)
    diffusion = Partial(_power_noise, noise, 1.0)
    sde = SDE(Partial(_proportional_drift, rate), diffusion, 1, domain=Positive())
    exact = Fixed(ExactGeometricBrownian(), rate=rate, noise=noise)
    return Model("geometric_brownian", sde, LogNormal(0.0, 0.5).expand(1), 1.0, exact)


@built_in
def geometric_brownian_family() -> Model:
    r"""$dX = \mu X\,dt + \sigma X\,dW$ over a box of $\mu, \sigma$.

    The parameters are `rate` in [-0.1, 0.2] and `noise` in [0.1, 0.5].
    """
    sde = SDE(
        *(_family_growth, _family_proportional_noise, 1),
        params=("rate", "noise"),
        domain=Positive(),
    )
    box = {"rate": Uniform(-0.1, 0.2), "noise": Uniform(0.1, 0.5)}
    starts, exact = LogNormal(0.0, 0.5).expand(1), ExactGeometricBrownian()
    return Model("geometric_brownian_family", sde, starts, 1.0, exact, box)


@built_in
def cir(rate: float = 3.0, level: float = 0.3, noise: float = 0.2) -> Model:
    r"""The Cox--Ingersoll--Ross process $dX = \kappa(m - X)\,dt + \sigma\sqrt X\,dW$.

    The process reaches zero if $2\kappa m < \sigma^2$; `learn` then warns.

    **Arguments:**

    - `rate`: $\kappa$, positive.
    - `level`: $m$, positive.
    - `noise`: $\sigma$, positive.
    """
    require_positive(rate=rate, level=level, noise=noise)
    diffusion = Partial(_power_noise, noise, 0.5)
    sde = SDE(Partial(_reverting_drift, rate, level), diffusion, 1, domain=Positive())
    exact = Fixed(ExactCIR(), rate=rate, level=level, noise=noise)
    return Model("cir", sde, LogNormal(np.log(level), 0.4).expand(1), 1.0, exact)


@built_in
def cir_family() -> Model:
    r"""$dX = \kappa(m - X)\,dt + \sigma\sqrt X\,dW$ over a box of $\kappa, m, \sigma$.

    The parameters are `rate` in [1, 4], `level` in [0.2, 0.4] and `noise` in [0.1, 0.3]. In this
    box $2\kappa m/\sigma^2$ is at least 4.4, so the process does not reach zero.
    """
    sde = SDE(
        *(family_reversion, _family_square_root_noise, 1),
        params=("rate", "level", "noise"),
        domain=Positive(),
    )
    box = {"rate": Uniform(1.0, 4.0), "level": Uniform(0.2, 0.4), "noise": Uniform(0.1, 0.3)}
    return Model("cir_family", sde, LogNormal(-1.2, 0.4).expand(1), 0.5, ExactCIR(), box)


@built_in
def ckls(
    rate: float = 0.5921, level: float = 0.0689, noise: float = 1.2924, exponent: float = 1.5
) -> Model:
    r"""The short rate $dX = \kappa(m - X)\,dt + \sigma X^\gamma\,dW$ of Chan et al.

    The defaults are their estimates (Journal of Finance, 1992), in years.

    **Arguments:**

    - `rate`: $\kappa$, positive.
    - `level`: $m$, positive.
    - `noise`: $\sigma$, positive.
    - `exponent`: $\gamma$, positive.
    """
    require_positive(rate=rate, level=level, noise=noise, exponent=exponent)
    diffusion = Partial(_power_noise, noise, exponent)
    sde = SDE(Partial(_reverting_drift, rate, level), diffusion, 1, domain=Positive())
    return Model("ckls", sde, LogNormal(np.log(level), 0.3).expand(1), 1.0, None)


@built_in
def jacobi(rate: float = 2.0, level: float = 0.4, noise: float = 0.5) -> Model:
    r"""The Jacobi (Wright--Fisher) process $dX = \kappa(m - X)\,dt + \sigma\sqrt{X(1-X)}\,dW$.

    The state lies in (0, 1). The process reaches a boundary if $2\kappa m$ or $2\kappa(1 - m)$ is
    below $\sigma^2$.

    **Arguments:**

    - `rate`: $\kappa$, positive.
    - `level`: $m$, in (0, 1).
    - `noise`: $\sigma$, positive.
    """
    require_positive(rate=rate, level=level, noise=noise)
    if level >= 1:
        raise ValueError(f"`level` must lie between 0 and 1; got {level}.")
    diffusion = Partial(_jacobi_noise, noise)
    sde = SDE(Partial(_reverting_drift, rate, level), diffusion, 1, domain=Interval(0.0, 1.0))
    return Model("jacobi", sde, Uniform(0.1, 0.9).expand(1), 1.0, None)


@built_in
def lotka_volterra(
    birth: float = 1.0,
    predation: float = 1.0,
    death: float = 1.0,
    growth: float = 1.0,
    noise: float = 0.3,
) -> Model:
    r"""The Lotka--Volterra model of prey $X$ and predators $Y$ with noise.

    $dX = X(a - bY)\,dt + \sigma X\,dW_1$ and $dY = Y(gX - c)\,dt + \sigma Y\,dW_2$.

    **Arguments:**

    - `birth`, `predation`: rates $a$ and $b$ of the prey, positive.
    - `death`, `growth`: rates $c$ and $g$ of the predators, positive.
    - `noise`: $\sigma$, positive.
    """
    require_positive(birth=birth, predation=predation, death=death, growth=growth, noise=noise)
    drift = Partial(_lotka_volterra_drift, birth, predation, death, growth)
    sde = SDE(drift, Partial(_proportional_noise, noise), 2, domain=Positive())
    balance = np.log([death / growth, birth / predation])
    return Model("lotka_volterra", sde, LogNormal(balance, 0.3).expand(2), 1.0, None)


@built_in
def heston(
    rate: float = 2.0,
    level: float = 0.09,
    noise: float = 0.3,
    correlation: float = -0.6,
    drift: float = 0.0,
) -> Model:
    r"""Heston's model of the logarithm of a price and its variance.

    $dX = (\mu - V/2)\,dt + \sqrt V\,dW_1$, $dV = \kappa(\theta - V)\,dt + \sigma\sqrt V\,dW_2$ with
    $dW_1dW_2 = \rho\,dt$.

    **Arguments:**

    - `rate`: $\kappa$, positive.
    - `level`: $\theta$, positive.
    - `noise`: $\sigma$, positive.
    - `correlation`: $\rho$, in (-1, 1).
    - `drift`: $\mu$.
    """
    require_positive(rate=rate, level=level, noise=noise)
    if not abs(correlation) < 1:
        raise ValueError(f"`correlation` must lie between -1 and 1; got {correlation}.")
    sde = SDE(
        Partial(_heston_drift, rate, level, drift),
        Partial(_heston_noise, noise, correlation),
        2,
        domain=(Real(), Positive()),
    )
    starts = Product(Normal(0.0, 0.1), LogNormal(np.log(level), 0.25))
    return Model("heston", sde, starts, 1.0, None)


def _proportional_drift(rate: Array, t: Array, x: Array) -> Array:
    return rate * x


def _reverting_drift(rate: Array, level: Array, t: Array, x: Array) -> Array:
    return rate * (level - x)


def _power_noise(noise: Array, exponent: Array, t: Array, x: Array) -> Array:
    return noise * x[:, None] ** exponent


def _proportional_noise(noise: Array, t: Array, x: Array) -> Array:
    return jnp.diag(noise * x)


def _jacobi_noise(noise: Array, t: Array, x: Array) -> Array:
    return noise * jnp.sqrt(x * (1 - x))[:, None]


def _lotka_volterra_drift(
    birth: Array, predation: Array, death: Array, growth: Array, t: Array, x: Array
) -> Array:
    prey, predators = x
    return jnp.stack([prey * (birth - predation * predators), predators * (growth * prey - death)])


def _heston_drift(rate: Array, level: Array, drift: Array, t: Array, x: Array) -> Array:
    return jnp.stack([drift - x[1] / 2, rate * (level - x[1])])


def _heston_noise(noise: Array, correlation: Array, t: Array, x: Array) -> Array:
    rest = jnp.sqrt(1 - jnp.asarray(correlation, x.dtype) ** 2)
    rows = jnp.array([[1.0, 0.0], [noise * correlation, noise * rest]], x.dtype)
    return jnp.sqrt(x[1]) * rows


def _family_growth(t: Array, x: Array, p: dict[str, Array]) -> Array:
    return p["rate"] * x


def _family_proportional_noise(t: Array, x: Array, p: dict[str, Array]) -> Array:
    return p["noise"] * x[:, None]


def _family_square_root_noise(t: Array, x: Array, p: dict[str, Array]) -> Array:
    return p["noise"] * jnp.sqrt(x)[:, None]
