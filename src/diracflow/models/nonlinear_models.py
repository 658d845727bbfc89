r"""Built-in models with nonlinear drift on the whole space."""

import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array

from ..sde.argument_checks import checked_count
from ..sde.laws import Normal
from ..sde.sde import SDE
from .catalogue import Model, built_in, require_positive
from .exact_densities import ExactBenes, ExactSheared


@built_in
def benes(angle: float = np.pi / 3, dim: int = 2) -> Model:
    r"""The rotated Beneš SDE $dX = R\tanh(R^\top X)\,dt + R\,dW$.

    The density splits into $2^d$ modes. $R$ is a product of rotations of neighbouring axes.

    **Arguments:**

    - `angle`: angle of each rotation.
    - `dim`: dimension of the state.
    """
    dim = checked_count("dim", dim)
    rotation = np.eye(dim)
    plane = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    for first in range(dim - 1):
        rotation[:, first : first + 2] = rotation[:, first : first + 2] @ plane
    sde = SDE(Partial(_benes_drift, rotation), rotation, dim)
    return Model("benes", sde, Normal(0.0, 0.75).expand(dim), 3.0, ExactBenes(rotation))


@built_in
def sheared(dim: int = 6, shear: float = 0.75, seed: int = 0) -> Model:
    r"""The sheared anisotropic Brownian motion $X = Y + a\,Y_1^2 e_2$, $Y = y_0 + BW$.

    $B = Q^\top\mathrm{diag}(\lambda, 1/\lambda)$ with $\lambda_i$ uniform on (1, 1.1) and $Q$ the
    orthogonal factor of a Gaussian matrix.

    **Arguments:**

    - `dim`: dimension of the state, even.
    - `shear`: $a$.
    - `seed`: seed of $\lambda$ and $Q$.
    """
    checked_count("seed", seed, least=0)
    if checked_count("dim", dim) % 2:
        raise ValueError(f"`dim` must be even and at least 2; got {dim}.")
    rng = np.random.default_rng(seed)
    orthogonal = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
    stretch = rng.uniform(1.0, 1.1, dim // 2)
    mixing = orthogonal.T * np.concatenate([stretch, 1 / stretch])
    drift, diffusion = (Partial(f, mixing, shear) for f in (_sheared_drift, _sheared_diffusion))
    sde = SDE(drift, diffusion, dim)
    return Model("sheared", sde, Normal(0.0, 1.0).expand(dim), 1.0, ExactSheared(mixing, shear))


@built_in
def langevin(friction: float = 1.0, noise: float = 1.0) -> Model:
    r"""A particle in the double well $V = (q^2-1)^2/4$ with noise only on the velocity.

    $dq = v\,dt$, $dv = (-V'(q) - \gamma v)\,dt + \sigma\,dW$.

    **Arguments:**

    - `friction`: $\gamma$.
    - `noise`: $\sigma$, positive.
    """
    return _oscillator("langevin", noise, stiffness=-1.0, cubic=1.0, friction=friction)


@built_in
def duffing(
    stiffness: float = 1.0, cubic: float = 1.0, friction: float = 0.3, noise: float = 0.5
) -> Model:
    r"""Duffing's oscillator, $dq = v\,dt$, $dv = (-kq - \kappa q^3 - \gamma v)\,dt + \sigma\,dW$.

    **Arguments:**

    - `stiffness`: $k$; positive for a hardening spring, negative for two wells.
    - `cubic`: $\kappa$.
    - `friction`: $\gamma$.
    - `noise`: $\sigma$, positive.
    """
    return _oscillator("duffing", noise, stiffness=stiffness, cubic=cubic, friction=friction)


@built_in
def van_der_pol(mu: float = 1.0, noise: float = 0.5) -> Model:
    r"""Van der Pol's limit cycle with noise on both components.

    $dx = y\,dt + \sigma\,dW_1$, $dy = (\mu(1 - x^2)y - x)\,dt + \sigma\,dW_2$.

    **Arguments:**

    - `mu`: $\mu$.
    - `noise`: $\sigma$, positive.
    """
    require_positive(noise=noise)
    sde = SDE(Partial(_cycle_drift, float(mu)), noise * np.eye(2), 2)
    return Model("van_der_pol", sde, Normal(0.0, 1.0).expand(2), 2.0, None)


@built_in
def double_well(dim: int = 1) -> Model:
    r"""A double well on the line or in the plane.

    In one dimension $dX = (X - X^3)\,dt + 0.7\,dW$. In two dimensions $dX = -\nabla V\,dt + dW$,
    where $V = (x^2-1)^2 + y^2/2 + 0.3xy$.

    **Arguments:**

    - `dim`: dimension of the state, 1 or 2.
    """
    if checked_count("dim", dim) > 2:
        raise ValueError(f"`dim` must be 1 or 2; got {dim}.")
    drift, noise, spread, horizon = (
        (_well_drift, 0.7, 1.0, 5.0) if dim == 1 else (_plane_drift, 1.0, 0.8, 3.0)
    )
    sde = SDE(Partial(drift), noise * np.eye(dim), dim)
    return Model("double_well", sde, Normal(0.0, spread).expand(dim), horizon, None)


@built_in
def double_well_chain(
    dim: int = 4, height: float = 1.0, coupling: float = 1.0, noise: float = 1.0
) -> Model:
    r"""A chain of coupled double wells: $dX = -\nabla V\,dt + \sigma\,dW$.

    $V = \tfrac{a}{4}\sum_i (x_i^2-1)^2 + \tfrac{k}{2}\sum_{i<d} (x_i - x_{i+1})^2$, a scalar field
    on a lattice of $d$ sites. Without coupling the density is a product over the sites.

    **Arguments:**

    - `dim`: the number of sites $d$.
    - `height`: $a$; the barrier between the wells of a free site is $a/4$.
    - `coupling`: $k$, zero or more.
    - `noise`: $\sigma$, positive.
    """
    dim = checked_count("dim", dim)
    require_positive(height=height, noise=noise)
    if coupling < 0:
        raise ValueError(f"`coupling` must be zero or more; got {coupling}.")
    sde = SDE(Partial(_chain_drift, float(height), float(coupling)), noise * np.eye(dim), dim)
    return Model("double_well_chain", sde, Normal(0.0, 1.0).expand(dim), 1.0, None)


def _oscillator(name: str, noise: float, **coefficients: float) -> Model:
    require_positive(noise=noise)
    drift = Partial(_spring_drift, **{key: float(value) for key, value in coefficients.items()})
    sde = SDE(drift, np.array([[0.0], [noise]]), 2)
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
    pull = coupling * jnp.diff(x)  # force of each site on the previous one
    end = jnp.zeros_like(x[:1])
    wells = height * (x - x**3)
    return wells + jnp.concatenate([pull, end]) - jnp.concatenate([end, pull])


def _benes_drift(rotation: Array, t: Array, x: Array) -> Array:
    return rotation @ jnp.tanh(rotation.T @ x)


def _sheared_drift(mixing: Array, shear: Array, t: Array, x: Array) -> Array:
    return jnp.zeros_like(x).at[1].set(shear * (mixing[0] @ mixing[0]))


def _sheared_diffusion(mixing: Array, shear: Array, t: Array, x: Array) -> Array:
    return jnp.asarray(mixing).at[1].add(2 * shear * x[0] * mixing[0])
