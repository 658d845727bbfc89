r"""Axes along which the components of an SDE are as nearly independent as possible.

In rotated coordinates the density of independent components does not look like a product, and it
has many modes. The Jacobian of the drift reveals the right axes. In coordinates of unit noise we
subtract its mean over the states, which is a linear drift that the source accounts for. The
remainder is diagonal along the right axes at every state. We therefore compute the orthogonal
matrix that diagonalises these remainders best, for many states at once, by Jacobi rotations
(Cardoso and Souloumiac, SIAM J. Matrix Anal. Appl. 17, 1996).

`rotated_sde` and `RotatedSource` are the SDE and its source in coordinates along these axes.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, Float

from ..equation.moving_frame import Basis, Frame
from ..sde.conditioning import initial_condition
from ..sde.parameters import Params
from ..sde.sde import SDE
from .gaussian_source import AbstractGaussianSource

# Largest number of sweeps over all planes, and the angle below which a sweep has converged.
_SWEEPS, _CONVERGED = 60, 1e-10
# Off-diagonal sum of squares, relative to that of all entries, that is due to rounding.
_ROUNDING = 1e-20
# Digits to which couplings are rounded, so that choices based on them do not depend on rounding.
_DIGITS = 6


class CoefficientJacobians(NamedTuple):
    """Jacobians of drift and diffusion at several states, and the mean covariance."""

    drift: Float[np.ndarray, "n d d"]
    diffusion: Float[np.ndarray, "n d m d"]
    noise: Float[np.ndarray, "d d"]


def coefficient_jacobians(
    sde: SDE, start_time: float | None, draws: Float[np.ndarray, "n d+k"]
) -> CoefficientJacobians:
    """Return the Jacobians at those draws of the start law where they are finite."""
    with jax.enable_x64(True):
        found = _jacobians(sde, start_time, jnp.asarray(draws))
    drift, diffusion, covariance = map(np.asarray, found)
    finite = [np.isfinite(a).reshape(len(a), -1).all(axis=1) for a in found]
    kept = np.logical_and.reduce(finite)
    if not kept.any():  # treated as if no component acted on another
        zeros = np.zeros_like(drift[:1]), np.zeros_like(diffusion[:1])
        return CoefficientJacobians(*zeros, np.eye(sde.dim))
    return CoefficientJacobians(drift[kept], diffusion[kept], covariance[kept].mean(axis=0))


@eqx.filter_jit
def _jacobians(sde: SDE, start_time: float | None, draws: Array) -> tuple[Array, Array, Array]:
    def one(g: Array) -> tuple[Array, Array, Array]:
        member, x, t = initial_condition(sde, start_time, g)
        drift = jax.jacfwd(lambda y: member.drift(t, y))(x)
        return drift, jax.jacfwd(lambda y: member.diffusion(t, y))(x), member.covariance(t, x)

    return jax.vmap(one)(draws)


def separating_basis(at: CoefficientJacobians) -> tuple[Basis, float]:
    """Return the axes, and the factor by which they reduce the off-diagonal sum of squares.

    The noise has unit size along the axes. If the matrices are diagonal without a rotation, the
    axes are the columns of the Cholesky factor of the noise.
    """
    factor = np.linalg.cholesky(at.noise)
    unit = np.linalg.solve(factor, at.drift @ factor)
    varying = unit - unit.mean(axis=0)
    symmetric = (varying + varying.transpose(0, 2, 1)) / 2
    before = _off_diagonal(symmetric)
    if before <= _ROUNDING * float(np.sum(unit**2)):
        return Basis(factor), 1.0
    rotation = _joint_diagonaliser(symmetric)
    return Basis(factor @ rotation), _off_diagonal(rotation.T @ symmetric @ rotation) / before


def couplings(
    at: CoefficientJacobians, basis: Basis | None, horizon: float
) -> Float[np.ndarray, "d d"]:
    """Return the strength with which pairs of components act on each other over the horizon.

    The strengths are root mean squares over the states, in units of the noise, or in units of the
    state for components without noise. They are relative to the largest one, including the action
    of a component on itself: if no component acts on another, rounding must not decide.
    """
    scale = np.sqrt(np.diag(at.noise))
    scale = np.where(scale > 0, scale, 1.0)
    columns, inverse = np.diag(scale), np.diag(1 / scale)
    if basis is not None:
        columns, inverse = basis.columns, basis.inverse
    drift = np.sqrt(np.mean((inverse @ at.drift @ columns) ** 2, axis=0))
    rotated = np.einsum("ij,njmk,kl->niml", inverse, at.diffusion, columns)
    noise = np.sqrt(np.mean(np.sum(rotated**2, axis=2), axis=0))
    both = horizon * drift + np.sqrt(horizon) * noise
    both = (both + both.T) / max(2 * float(both.max()), 1e-300)
    return np.round(both, _DIGITS) * (1 - np.eye(len(both)))


def _off_diagonal(matrices: Float[np.ndarray, "n d d"]) -> float:
    diagonal = np.einsum("nii->ni", matrices)
    return float(np.sum(matrices**2) - np.sum(diagonal**2))


def _joint_diagonaliser(matrices: Float[np.ndarray, "n d d"]) -> Float[np.ndarray, "d d"]:
    """Return the rotation that minimises the off-diagonal sum of squares of all matrices."""
    dim = matrices.shape[1]
    rotation, rest = np.eye(dim), matrices.copy()
    for _ in range(_SWEEPS):
        largest = 0.0
        for i in range(dim - 1):
            for j in range(i + 1, dim):
                angle = _best_angle(rest[:, i, i] - rest[:, j, j], 2 * rest[:, i, j])
                largest = max(largest, abs(angle))
                plane = np.eye(dim)
                plane[[i, j], [i, j]] = np.cos(angle)
                plane[i, j], plane[j, i] = -np.sin(angle), np.sin(angle)
                rotation, rest = rotation @ plane, plane.T @ rest @ plane
        if largest < _CONVERGED:
            break
    return rotation


def _best_angle(difference: Float[np.ndarray, " n"], twice: Float[np.ndarray, " n"]) -> float:
    """Return the angle in a plane that minimises the off-diagonal sum of squares.

    The angle is at most an eighth of a turn, which preserves the order of the axes.
    """
    along = float(np.sum(difference**2) - np.sum(twice**2))
    across = float(2 * difference @ twice)
    return float(np.arctan2(across, along) / 4)


class RotatedSource(AbstractGaussianSource):
    """A source for the rotated SDE, used as a source for the original SDE."""

    sde: SDE
    start_time: float | None = eqx.field(static=True)
    basis: Basis
    rotated: AbstractGaussianSource

    def __init__(self, sde: SDE, basis: Basis, rotated: AbstractGaussianSource):
        self.sde, self.basis, self.rotated = sde, basis, rotated
        self.start_time = rotated.start_time

    @property
    def integrates(self) -> bool:
        return self.rotated.integrates

    @property
    def skewed(self) -> bool:
        return self.rotated.skewed

    def frame(self, tau: Float[Array, ""], x0: Float[Array, " d+k"]) -> Frame:
        """Return the mean and the factor of the rotated source; the factor refers to the basis."""
        start, rest = jnp.split(x0, [self.sde.dim])
        frame = self.rotated.frame(tau, jnp.concatenate([self.basis.along(start), rest]))
        return Frame(self.basis.state(frame.mean), frame.factor, self.basis, frame.shape)


def rotated_sde(sde: SDE, basis: Basis) -> SDE:
    """Return the SDE of the coordinates along the axes of `basis`."""
    coefficients = Partial(_drift, sde, basis), Partial(_diffusion, sde, basis)
    return SDE(*coefficients, sde.dim, params=sde.params)


def _drift(sde: SDE, basis: Basis, t: Array, y: Array, *params: Params) -> Float[Array, " d"]:
    member = sde.at(*params) if params else sde
    return basis.along(member.drift(t, basis.state(y)))


def _diffusion(sde: SDE, basis: Basis, t: Array, y: Array, *params: Params) -> Float[Array, "d m"]:
    member = sde.at(*params) if params else sde
    return basis.along(member.diffusion(t, basis.state(y)))
