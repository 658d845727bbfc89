r"""Gaussian moment closure for each start, also for degenerate noise.

Mean and covariance follow $m' = E[b]$, $C' = E[\nabla b]C + CE[\nabla b]^\top + E[\Sigma]$ under
$N(m, C)$ with $C = 0$ at the start. The closure is exact for linear SDEs. Otherwise it follows the
path of each start, for example along a limit cycle. If the density splits into two modes, the
closure follows one of them and the other lies far outside. The common width of `ClosureSource` is
then the better choice.

The equations are integrated by a fixed number of exponential steps of equal length in
$\sqrt\tau$. Each step is exact for the equation linearised at its midpoint, so stiffness is no
problem. If the start time varies, so that coefficients depend on time, Simpson's rule accounts for
their change along a step.

**Degenerate noise.** If noise enters only some components, $\Sigma\tau$ is singular and an Euler
step has no density. The first step here solves the linearised equation (Ozaki). Its covariance
$\int_0^\tau e^{As}\Sigma e^{A^\top s}ds$ is regular if noise reaches the other components through
the drift (Kalman's condition). Their widths are of order $\tau^{3/2}$, $\tau^{5/2}$, ..., instead
of $\tau^{1/2}$. This loses no digits: the terms of the integral agree in sign entry by entry, and
the rounding errors of a Cholesky factorisation do not depend on the scales of rows and columns.
The argument requires that the directions of different widths are the axes. If they are not,
covariances refer to a `basis` of such directions, and relative errors are $\epsilon/\tau$ instead
of $\epsilon/\tau^2$.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from ..equation.moving_frame import Frame
from ..equation.small_matrices import cholesky
from ..sde.conditioning import InitialCondition, initial_condition
from ..sde.linear_step import linear_step
from ..sde.sde import SDE
from .ensemble import nodes
from .gaussian_source import AbstractGaussianSource

# Steps of the closure. A varying start time needs more, because coefficients change along a step.
# Otherwise 24 steps gave the same forcing as 12 on Langevin and van der Pol equations, within 1 %
# wherever the forcing exceeds 1e-3.
_STEPS, _STEPS_IN_TIME = 12, 24
# Halvings within a step: exact to rounding if the drift Jacobian times the horizon is at most 150.
_DOUBLINGS = 8
# Length of the remainder of a unit vector below which it is linearly dependent.
_ALONG = 1e-9


class MomentSource(AbstractGaussianSource):
    """A Gaussian with mean and covariance from moment closure.

    **Arguments:**

    - `sde`: the SDE.
    - `start_time`: the start time, or `None` if it is part of the conditioning vector.
    - `basis`: an orthogonal matrix whose columns are ordered by when noise reaches them, the last
        first; by default the identity. See `graded_basis`.
    """

    sde: SDE
    start_time: float | None = eqx.field(static=True, default=0.0)
    basis: Float[np.ndarray, "d d"] | None = None

    def frame(self, tau: Float[Array, ""], x0: Float[Array, " d+k"]) -> Frame:
        """Return the mean and the Cholesky factor from the closure."""
        known = self.initial_condition(x0)
        steps = _STEPS if self.start_time is not None else _STEPS_IN_TIME

        def step(moments: _Moments, index: Array) -> tuple[_Moments, None]:
            before, after = (tau * (i / steps) ** 2 for i in (index, index + 1))
            return self._step(known, moments, before, after - before), None

        x, length = known.start, tau / steps**2
        start = _Moments(x, jnp.zeros((len(x), len(x)), x.dtype))
        # The first step is separate: the factor of a zero covariance has no derivative.
        averages = self._averages(known, x, start.covariance, length / 2)
        change = self._change(known, x, start.covariance, (0.0, length), averages)
        first = self._after(start, averages, length, change)
        last, _ = jax.lax.scan(step, first, jnp.arange(1, steps, dtype=x0.dtype))
        return Frame(last.mean, self._lower(self._from_basis(_factor(last.covariance, tau))))

    def _step(
        self, initial: InitialCondition, moments: "_Moments", tau: Array, length: Array
    ) -> "_Moments":
        """Return the moments after a step of the midpoint rule, which is of second order."""
        spread = self._from_basis(_factor(moments.covariance, tau))
        early = self._averages(initial, moments.mean, spread, tau)
        middle, half_way = self._after(moments, early, length / 2), tau + length / 2
        spread = self._from_basis(_factor(middle.covariance, half_way))
        averages = self._averages(initial, middle.mean, spread, half_way)
        change = self._change(initial, middle.mean, spread, (tau, tau + length), averages)
        # The drift at the start of the step, extrapolated linearly from the midpoint.
        drift = averages.drift + averages.jacobian @ (moments.mean - middle.mean)
        return self._after(moments, averages._replace(drift=drift), length, change)

    def _averages(
        self, initial: InitialCondition, mean: Array, spread: Array, tau: ArrayLike
    ) -> "_Averages":
        sde, time = initial.sde, initial.start_time + jnp.asarray(tau, mean.dtype)
        points = nodes(mean, spread)

        def at(x: Array) -> tuple[Array, Array, Array]:
            jacobian = jax.jacfwd(lambda y: sde.drift(time, y))(x)
            # Rotating before squaring keeps small entries accurate.
            columns = self._to_basis(sde.diffusion(time, x))
            return sde.drift(time, x), jacobian, columns @ columns.T

        return _Averages(*(jnp.mean(values, axis=0) for values in jax.vmap(at)(points)))

    def _change(
        self,
        initial: InitialCondition,
        mean: Array,
        spread: Array,
        ends: tuple[ArrayLike, ArrayLike],
        middle: "_Averages",
    ) -> "tuple[_Averages, _Averages] | None":
        """Return the averages at both ends of a step minus those at its midpoint, for one law."""
        if self.start_time is not None:
            return None
        early, late = (self._averages(initial, mean, spread, tau) for tau in ends)
        return jax.tree.map(jnp.subtract, early, middle), jax.tree.map(jnp.subtract, late, middle)

    def _after(
        self,
        moments: "_Moments",
        averages: "_Averages",
        length: Array,
        change: "tuple[_Averages, _Averages] | None" = None,
    ) -> "_Moments":
        """Return the moments after a step of the linearised equation."""
        rotated = self._to_basis(self._to_basis(averages.jacobian).T).T
        step = linear_step(rotated, averages.noise, length, _DOUBLINGS)
        transfer = jnp.eye(len(rotated), dtype=rotated.dtype) + step.change
        covariance = transfer @ moments.covariance @ transfer.T + step.noise
        moved = step.integral @ self._to_basis(averages.drift[:, None])
        if change is not None:
            early, late = change
            drifts = (self._to_basis(average.drift[:, None]) for average in (early, late))
            moved = moved + (transfer @ next(drifts) + next(drifts)) / 6
            noise = transfer @ early.noise @ transfer.T + late.noise
            covariance = covariance + length / 6 * noise
        mean = moments.mean + length * self._from_basis(moved)[:, 0]
        return _Moments(mean, (covariance + covariance.T) / 2)

    def _to_basis(self, columns: Float[Array, "d k"]) -> Float[Array, "d k"]:
        return columns if self.basis is None else jnp.asarray(self.basis.T, columns.dtype) @ columns

    def _from_basis(self, columns: Float[Array, "d k"]) -> Float[Array, "d k"]:
        return columns if self.basis is None else jnp.asarray(self.basis, columns.dtype) @ columns

    def _lower(self, factor: Float[Array, "d d"]) -> Float[Array, "d d"]:
        """Return the lower triangular factor of the same covariance."""
        if self.basis is None:
            return factor
        upper = jnp.linalg.qr(factor.T, mode="r")
        return upper.T * jnp.sign(jnp.diag(upper))[None]


def graded_basis(
    sde: SDE, start_time: float | None, x0: Float[np.ndarray, " d+k"]
) -> Float[np.ndarray, "d d"] | None:
    """Return the basis of directions in the order in which noise reaches them from the start `x0`.

    Return `None` if these directions are the axes, as for noise on velocities, or if noise enters
    all components directly.
    """
    with jax.enable_x64(True):
        member, x, time = initial_condition(sde, start_time, jnp.asarray(x0))
        block = np.asarray(member.diffusion(time, x))
        jacobian = np.asarray(jax.jacfwd(lambda y: member.drift(time, y))(x))
    if np.linalg.matrix_rank(block) == len(jacobian):
        return None
    blocks = [block]
    for _ in range(len(jacobian) - 1):
        blocks.append(jacobian @ blocks[-1])
    basis = _orthonormal(np.concatenate(blocks, axis=1))[:, ::-1]
    axes = np.sort(np.abs(basis), axis=0)[:-1] < _ALONG
    return None if axes.all() else basis


def _orthonormal(columns: Float[np.ndarray, "d k"]) -> Float[np.ndarray, "d d"]:
    """Return an orthonormal basis from the columns by Gram--Schmidt, completed by the axes."""
    found: list[np.ndarray] = []
    for column in (*columns.T, *np.eye(len(columns))):
        rest = column.copy()
        for _ in range(2):  # the second pass removes rounding errors
            for direction in found:
                rest -= (direction @ rest) * direction
        if np.linalg.norm(rest) > _ALONG * float(np.linalg.norm(column)):
            found.append(rest / np.linalg.norm(rest))
    return np.stack(found[: len(columns)], axis=1)


class _Moments(NamedTuple):
    mean: Float[Array, " d"]
    covariance: Float[Array, "d d"]  # in the basis


class _Averages(NamedTuple):
    """Means under a normal law of drift, its Jacobian, and the covariance in the basis."""

    drift: Float[Array, " d"]
    jacobian: Float[Array, "d d"]
    noise: Float[Array, "d d"]


def _factor(covariance: Float[Array, "d d"], tau: Float[Array, ""]) -> Float[Array, "d d"]:
    """Return the Cholesky factor of a covariance of order `tau`, for any `tau`."""
    return jnp.sqrt(tau) * cholesky(covariance / tau)
