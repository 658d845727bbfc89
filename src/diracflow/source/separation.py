r"""Axes along which the components of an SDE have as little to do with each other as possible.

A process of independent components, seen in turned coordinates, has as many modes as their product,
and nothing in those coordinates tells that they are a product. What betrays it are the slopes of
the drift: in coordinates of unit noise, what varies of them from state to state is diagonal along
the right axes. (What does not vary is a linear drift, which the source accounts for.) So we look
for an orthogonal matrix that makes these variations as nearly diagonal as it can, for many states
at once, by Jacobi's rotations (Cardoso and Souloumiac, SIAM J. Matrix Anal. Appl. 17, 1996).
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, Float

from ..equation.moving_frame import Basis
from ..sde.conditioning import given
from ..sde.parameters import Params
from ..sde.sde import SDE

# Sweeps over all planes, and the rotation below which a sweep changes nothing.
_SWEEPS, _NOTHING = 60, 1e-10
# Of the squares of all slopes: what rounding may leave off the diagonal.
_ROUNDING = 1e-20
# Digits of couplings that count: what is chosen by them must not depend on rounding.
_DIGITS = 6


class Slopes(NamedTuple):
    """Of drift and diffusion, at some states."""

    drift: Float[np.ndarray, "n d d"]
    diffusion: Float[np.ndarray, "n d m d"]
    noise: Float[np.ndarray, "d d"]  # mean covariance


def slopes(sde: SDE, start_time: float | None, draws: Float[np.ndarray, "n d+k"]) -> Slopes:
    """Slopes at draws of the start law, where they are finite."""
    with jax.enable_x64(True):
        found = _slopes(sde, start_time, jnp.asarray(draws))
    drift, diffusion, covariance = map(np.asarray, found)
    finite = [np.isfinite(a).reshape(len(a), -1).all(axis=1) for a in found]
    kept = np.logical_and.reduce(finite)
    if not kept.any():  # then nothing is known of what acts on what
        return Slopes(np.zeros_like(drift[:1]), np.zeros_like(diffusion[:1]), np.eye(sde.dim))
    return Slopes(drift[kept], diffusion[kept], covariance[kept].mean(axis=0))


@eqx.filter_jit
def _slopes(sde: SDE, start_time: float | None, draws: Array) -> tuple[Array, Array, Array]:
    def one(g: Array) -> tuple[Array, Array, Array]:
        member, x, t = given(sde, start_time, g)
        drift = jax.jacfwd(lambda y: member.drift(t, y))(x)
        return drift, jax.jacfwd(lambda y: member.diffusion(t, y))(x), member.covariance(t, x)

    return jax.vmap(one)(draws)


def separating_basis(at: Slopes) -> tuple[Basis, float]:
    """The axes, and what is left off the diagonal of what was there without turning, squared.

    Noise is of unit size along the axes. If there is nothing off the diagonal they are those of the
    noise's factor.
    """
    factor = np.linalg.cholesky(at.noise)
    unit = np.linalg.solve(factor, at.drift @ factor)
    varying = unit - unit.mean(axis=0)
    symmetric = (varying + varying.transpose(0, 2, 1)) / 2
    before = _off_diagonal(symmetric)
    if before <= _ROUNDING * float(np.sum(unit**2)):
        return Basis(factor), 1.0
    turn = _joint_diagonaliser(symmetric)
    return Basis(factor @ turn), _off_diagonal(turn.T @ symmetric @ turn) / before


def couplings(at: Slopes, basis: Basis | None, horizon: float) -> Float[np.ndarray, "d d"]:
    """How strongly two components act on each other over the horizon.

    Root mean squares over the states, in units of the noise; in those of the state for components
    without any. Relative to the largest, what components do to themselves included: where none acts
    on another, rounding must not choose.
    """
    scale = np.sqrt(np.diag(at.noise))
    scale = np.where(scale > 0, scale, 1.0)
    columns, inverse = np.diag(scale), np.diag(1 / scale)
    if basis is not None:
        columns, inverse = basis.columns, basis.inverse
    drift = np.sqrt(np.mean((inverse @ at.drift @ columns) ** 2, axis=0))
    turned = np.einsum("ij,njmk,kl->niml", inverse, at.diffusion, columns)
    noise = np.sqrt(np.mean(np.sum(turned**2, axis=2), axis=0))
    both = horizon * drift + np.sqrt(horizon) * noise
    both = (both + both.T) / max(2 * float(both.max()), 1e-300)
    return np.round(both, _DIGITS) * (1 - np.eye(len(both)))


def turned_sde(sde: SDE, basis: Basis) -> SDE:
    """The SDE of the coordinates along some axes."""
    coefficients = Partial(_drift, sde, basis), Partial(_diffusion, sde, basis)
    return SDE(*coefficients, sde.dim, params=sde.params)


def _drift(sde: SDE, basis: Basis, t: Array, y: Array, *params: Params) -> Float[Array, " d"]:
    member = sde.at(*params) if params else sde
    return basis.along(member.drift(t, basis.state(y)))


def _diffusion(sde: SDE, basis: Basis, t: Array, y: Array, *params: Params) -> Float[Array, "d m"]:
    member = sde.at(*params) if params else sde
    return basis.along(member.diffusion(t, basis.state(y)))


def _off_diagonal(matrices: Float[np.ndarray, "n d d"]) -> float:
    diagonal = np.einsum("nii->ni", matrices)
    return float(np.sum(matrices**2) - np.sum(diagonal**2))


def _joint_diagonaliser(matrices: Float[np.ndarray, "n d d"]) -> Float[np.ndarray, "d d"]:
    """The rotation that makes symmetric matrices diagonal, as nearly as one can for all of them."""
    dim = matrices.shape[1]
    turn, rest = np.eye(dim), matrices.copy()
    for _ in range(_SWEEPS):
        largest = 0.0
        for i in range(dim - 1):
            for j in range(i + 1, dim):
                angle = _best_angle(rest[:, i, i] - rest[:, j, j], 2 * rest[:, i, j])
                largest = max(largest, abs(angle))
                plane = np.eye(dim)
                plane[[i, j], [i, j]] = np.cos(angle)
                plane[i, j], plane[j, i] = -np.sin(angle), np.sin(angle)
                turn, rest = turn @ plane, plane.T @ rest @ plane
        if largest < _NOTHING:
            break
    return turn


def _best_angle(difference: Float[np.ndarray, " n"], twice: Float[np.ndarray, " n"]) -> float:
    """The rotation of a plane after which the sum of squares off the diagonal is least.

    By an eighth of a turn at most: which axis comes first is left as it is.
    """
    along = float(np.sum(difference**2) - np.sum(twice**2))
    across = float(2 * difference @ twice)
    return float(np.arctan2(across, along) / 4)
