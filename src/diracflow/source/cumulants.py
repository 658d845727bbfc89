r"""Closure with mean, covariance and third cumulants of each start.

Where noise is small or times are short, the leading difference of a density from a Gaussian is its
skewness, of first order in the size of the noise; all else is of second order. Skewness differs
from start to start, which small networks learn slowly. Here it is computed. The moments follow

$$m' = E[b],\quad C' = E[b\,\delta^\top] + (\cdot)^\top + E[\Sigma],\quad
  \kappa_{ijk}' = \sum E[(b_i - m_i')\delta_j\delta_k] + \sum E[\Sigma_{ij}\delta_k]$$

with $\delta = X - m$ and sums over the three places of an index. Expectations are sums over the
nodes of a rule of degree five, shifted by a quadratic map with third cumulants $\kappa$.
"""

import functools
import itertools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..equation.moving_frame import Frame
from ..equation.skew_map import packed
from ..equation.small_matrices import cholesky, solve_lower
from ..sde.conditioning import InitialCondition
from .moments import MomentSource, factor_at


class CumulantSource(MomentSource):
    """A law with mean, covariance and third cumulants from moment closure.

    **Arguments:** those of `MomentSource`; `steps` is the number of Runge--Kutta steps.
    """

    steps: int = eqx.field(static=True, default=32)

    @property
    def skewed(self) -> bool:
        return True

    def _completed(self, moments: Any) -> "_Cumulants":
        # Third cumulants grow with the square of time at least. After the first step they are small
        # compared with those after the last.
        dim = len(moments.mean)
        third = jnp.zeros((dim, dim, dim), moments.mean.dtype)
        return _Cumulants(moments.mean, moments.covariance, third)

    def _frame_of(self, moments: Any, tau: Array) -> Frame:
        spread = factor_at(moments.covariance, tau)
        lower = self._lower(self._from_basis(spread))
        shape = _standardised(moments.third, spread)
        if self.basis is not None:
            shape = _transformed(shape, solve_lower(lower, self._from_basis(spread)))
        return Frame(moments.mean, lower, shape=packed(shape))

    def _rates(self, initial: InitialCondition, moments: Any, tau: Array) -> "_Cumulants":
        """Return the time derivatives of the moments by the closure."""
        sde, time = initial.sde, initial.start_time + tau
        spread, mean = factor_at(moments.covariance, tau), moments.mean
        z, weights = (jnp.asarray(table, mean.dtype) for table in fifth_degree_rule(len(mean)))
        skewness = _standardised(moments.third, spread)
        nodes = _shifted(z, skewness)
        away = nodes @ spread.T
        points = mean[None] + self._from_basis(away.T).T
        drift = jax.vmap(lambda x: sde.drift(time, x))(points)
        columns = jax.vmap(lambda x: self._to_basis(sde.diffusion(time, x)))(points)
        mean_drift = weights @ drift
        weighted = weights[:, None] * self._to_basis((drift - mean_drift[None]).T).T
        noise = columns @ columns.swapaxes(1, 2)
        across = weighted.T @ away
        # Third cumulants that the nodes do not have act through the linear part of the drift.
        third = _contracted(weights[:, None] * nodes, _outer(nodes))
        missing = jnp.tensordot(weighted.T @ nodes, skewness - third, 1)
        pushed = _contracted(weighted, _outer(away)) + spread @ missing @ spread.T
        spreading = _contracted(weights[:, None] * away, noise)
        return _Cumulants(
            mean_drift,
            across + across.T + _contracted(weights[:, None], noise)[0],
            _over_places(pushed + spreading),
        )


class _Cumulants(NamedTuple):
    mean: Float[Array, " d"]
    covariance: Float[Array, "d d"]  # in the basis
    third: Float[Array, "d d d"]  # in the basis


def _outer(rows: Float[Array, "n d"]) -> Float[Array, "n d d"]:
    return rows[:, :, None] * rows[:, None, :]


def _contracted(
    rows: Float[Array, "n k"], matrices: Float[Array, "n d d"]
) -> Float[Array, "k d d"]:
    """Return the sums over the nodes of rows times matrices, as one matrix product."""
    dim = matrices.shape[-1]
    return (rows.T @ matrices.reshape(len(rows), -1)).reshape(-1, dim, dim)


def _over_places(tensor: Float[Array, "d d d"]) -> Float[Array, "d d d"]:
    """Return the sum over the places of the first index; the other two are symmetric."""
    return tensor + tensor.transpose(1, 0, 2) + tensor.transpose(2, 1, 0)


def _transformed(tensor: Float[Array, "d d d"], matrix: Array) -> Float[Array, "d d d"]:
    for _ in range(3):
        tensor = jnp.tensordot(tensor, matrix, ((0,), (1,)))
    return tensor


def _standardised(third: Float[Array, "d d d"], spread: Array) -> Float[Array, "d d d"]:
    """Return third cumulants in coordinates of unit covariance."""
    inverse = solve_lower(spread, jnp.eye(len(spread), dtype=spread.dtype))
    return _transformed(third, inverse)


def _shifted(z: Float[Array, "n d"], skewness: Float[Array, "d d d"]) -> Float[Array, "n d"]:
    """Return the nodes of a law with third cumulants, to first order in these.

    Large cumulants are reduced, so that nodes stay near the bulk of the law.
    """
    bounded = skewness / jnp.sqrt(1 + jnp.sum(skewness**2) / 4)
    dim = z.shape[1]
    squares = _outer(z).reshape(len(z), -1) @ bounded.reshape(dim, -1).T
    moved = z + (squares - jnp.einsum("ijj->i", bounded)[None]) / 6
    # Their covariance, which has to be the identity.
    flat = bounded.reshape(dim, -1)
    covariance = jnp.eye(dim, dtype=z.dtype) + flat @ flat.T / 18
    identity = jnp.eye(dim, dtype=z.dtype)
    # Triangular solves with many right-hand sides would go to threads of LAPACK, which wait.
    return moved @ solve_lower(cholesky(covariance), identity).T


@functools.cache
def fifth_degree_rule(dim: int) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, " n"]]:
    """Return nodes and weights that integrate polynomials of degree five over a normal law.

    McNamee and Stenger, Numer. Math. 10 (1967). Some weights are negative above four dimensions.
    """
    axes = np.sqrt(3) * np.eye(dim)
    singles = [sign * axis for axis in axes for sign in (1, -1)]
    pairs = [
        a * axes[i] + b * axes[j]
        for i, j in itertools.combinations(range(dim), 2)
        for a, b in itertools.product((1, -1), repeat=2)
    ]
    weights = [1 + (dim**2 - 7 * dim) / 18]
    weights += [(4 - dim) / 18] * len(singles) + [1 / 36] * len(pairs)
    return np.array([np.zeros(dim), *singles, *pairs]), np.array(weights)
