r"""Gaussian moment closure for each start, also for degenerate noise.

Mean and covariance follow $m' = E[b]$, $C' = E[\nabla b]C + CE[\nabla b]^\top + E[\Sigma]$ under
$N(m, C)$ with $C = 0$ at the start. The closure is exact for linear SDEs. Otherwise it follows the
path of each start, for example along a limit cycle. If the density splits into two modes, the
closure follows one of them and the other lies far outside. The common width of `ClosureSource` is
then the better choice.

The equations are integrated by a fixed number of steps, of one of two kinds. An exponential step is
exact for the equation linearised at its midpoint: it is exact for linear SDEs, and stiffness is no
problem. If the start time varies, so that coefficients depend on time, Simpson's rule accounts for
their change along a step. A Runge--Kutta step is of order four and needs no derivatives, since
$E[\nabla b]C = E[b(X-m)^\top]$ (Stein's identity). The first step is exponential, with an error of
the square of its length, so that the order is three altogether. Where nothing is stiff, these steps
cost a tenth and are a hundred times more accurate. `moment_source` chooses.

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

from collections.abc import Callable
from typing import Any, NamedTuple

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
# Stages and weights of the classical Runge--Kutta method.
_NODES, _WEIGHTS = np.array([0.0, 0.5, 0.5, 1.0]), np.array([1.0, 2.0, 2.0, 1.0]) / 6
# Runge--Kutta steps end at times (i / n)^1.5. With the exponent 2 the second step is three times
# the first, and stages of degenerate covariances are indefinite. With 1 the first step, of second
# order, is long: on four problems errors were 4 to 60 times larger.
_GRADING = 1.5
# Numbers of Runge--Kutta steps to choose from; the last one is the reference. The others may leave
# this error, in widths of the Gaussian. It changes the total variation by 0.1 %.
_NUMBERS, _ACCURATE = (8, 16, 32, 64, 128, 256), 3e-3
# Exponential steps with a smaller error are exact: the SDE is linear.
_EXACT = 1e-6
# Share of the starts for which errors may be larger.
_RARE = 0.01


class MomentSource(AbstractGaussianSource):
    """A Gaussian with mean and covariance from moment closure.

    **Arguments:**

    - `sde`: the SDE.
    - `start_time`: the start time, or `None` if it is part of the conditioning vector.
    - `basis`: an orthogonal matrix whose columns are ordered by when noise reaches them, the last
        first; by default the identity. See `graded_basis`.
    - `steps`: the number of Runge--Kutta steps; by default the steps are exponential.
    """

    sde: SDE
    start_time: float | None = eqx.field(static=True, default=0.0)
    basis: Float[np.ndarray, "d d"] | None = None
    steps: int | None = eqx.field(static=True, default=None)

    @property
    def integrates(self) -> bool:
        return True

    def frame(self, tau: Float[Array, ""], x0: Float[Array, " d+k"]) -> Frame:
        """Return the mean and the Cholesky factor from the closure."""
        if self.steps is not None:
            return self.frame_after(self.steps, tau, x0, _scanned)
        steps = _STEPS if self.start_time is not None else _STEPS_IN_TIME
        return self._integrated(steps, 2.0, self._exponential_step, tau, x0, _scanned)

    def frame_after(
        self, steps: ArrayLike, tau: Float[Array, ""], x0: Float[Array, " d+k"], loop: Callable
    ) -> Frame:
        """Return the frame after a number of Runge--Kutta steps, made by `loop`."""
        return self._integrated(steps, _GRADING, self._runge_kutta_step, tau, x0, loop)

    def _integrated(
        self,
        steps: ArrayLike,
        grading: float,
        advance: Callable,
        tau: Float[Array, ""],
        x0: Float[Array, " d+k"],
        loop: Callable,
    ) -> Frame:
        known = self.initial_condition(x0)

        def step(index: Array, moments: Any) -> Any:
            before, after = (tau * (i / steps) ** grading for i in (index, index + 1))
            return advance(known, moments, before, after - before)

        x, length = known.start, tau / steps**grading
        start = _Moments(x, jnp.zeros((len(x), len(x)), x.dtype))
        # The first step is separate: the factor of a zero covariance has no derivative.
        averages = self._averages(known, x, start.covariance, length / 2)
        change = self._change(known, x, start.covariance, (0.0, length), averages)
        first = self._completed(self._after(start, averages, length, change))
        return self._frame_of(loop(steps, step, first), tau)

    def _completed(self, moments: "_Moments") -> Any:
        """Return moments after the first step with all that later steps need."""
        return moments

    def _frame_of(self, moments: Any, tau: Array) -> Frame:
        factor = self._from_basis(factor_at(moments.covariance, tau))
        return Frame(moments.mean, self._lower(factor))

    def _runge_kutta_step(
        self, initial: InitialCondition, moments: Any, tau: Array, length: Array
    ) -> Any:
        """Return the moments after a step of the classical Runge--Kutta method."""

        def stage(state: tuple, node_and_weight: tuple[Array, Array]) -> tuple[tuple, None]:
            (node, weight), (rate, total) = node_and_weight, state
            at = _along(moments, node * length, rate)
            rate = self._rates(initial, at, tau + node * length)
            return (rate, _along(total, weight, rate)), None

        zero = jax.tree.map(jnp.zeros_like, moments)
        table = jnp.asarray(_NODES, tau.dtype), jnp.asarray(_WEIGHTS, tau.dtype)
        (_, total), _ = jax.lax.scan(stage, (zero, zero), table)
        return _along(moments, length, total)

    def _rates(self, initial: InitialCondition, moments: Any, tau: Array) -> Any:
        """Return the time derivatives of the moments by the closure."""
        sde, time = initial.sde, initial.start_time + tau
        spread, dim = factor_at(moments.covariance, tau), len(moments.mean)
        points = nodes(moments.mean, self._from_basis(spread))
        drift = jax.vmap(lambda x: sde.drift(time, x))(points)
        columns = jax.vmap(lambda x: self._to_basis(sde.diffusion(time, x)))(points)
        # Nodes come in pairs, at distances of sqrt(d) columns of the factor.
        across = self._to_basis((drift[:dim] - drift[dim:]).T / (2 * np.sqrt(dim))) @ spread.T
        noise = jnp.mean(columns @ columns.swapaxes(1, 2), axis=0)
        return _Moments(jnp.mean(drift, axis=0), across + across.T + noise)

    def _exponential_step(
        self, initial: InitialCondition, moments: "_Moments", tau: Array, length: Array
    ) -> "_Moments":
        """Return the moments after a step of the midpoint rule, which is of second order."""
        spread = self._from_basis(factor_at(moments.covariance, tau))
        early = self._averages(initial, moments.mean, spread, tau)
        middle, half_way = self._after(moments, early, length / 2), tau + length / 2
        spread = self._from_basis(factor_at(middle.covariance, half_way))
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


def _scanned(steps: int, step: Callable, first: Any) -> Any:
    """Make a number of steps that is known when the program is compiled; differentiable."""
    indices = jnp.arange(1, steps, dtype=first.mean.dtype)
    return jax.lax.scan(lambda state, index: (step(index, state), None), first, indices)[0]


def _counted(steps: Array, step: Callable, first: Any) -> Any:
    """Make any number of steps in one program."""
    dtype = first.mean.dtype
    return jax.lax.fori_loop(1, steps, lambda i, state: step(i.astype(dtype), state), first)


def moment_source(
    sde: SDE, start_time: float | None, horizon: float, draws: Float[np.ndarray, "n d+k"]
) -> tuple[MomentSource, float]:
    """Return a source with accurate steps, and its error in widths of the Gaussian.

    Moments at the horizon, from draws of the conditioning vector, are compared with those of short
    steps. Exponential steps are taken where they are exact, or where no Runge--Kutta steps are
    accurate.
    """
    axes = graded_basis(sde, start_time, draws.mean(axis=0))
    exponential = MomentSource(sde, start_time, axes)
    with jax.enable_x64(True):
        span, starts = jnp.asarray(horizon), jnp.asarray(draws)
        after = lambda steps: _frames(exponential, span, starts, jnp.asarray(steps))
        best = after(_NUMBERS[-1])
        error = _difference(_frames(exponential, span, starts), best)
        if error < _EXACT:
            return exponential, error
        for steps in _NUMBERS[:-1]:
            found = _difference(after(steps), best)
            if found < _ACCURATE:
                return MomentSource(sde, start_time, axes, steps), found
    return exponential, error


@eqx.filter_jit
def _frames(
    source: MomentSource, tau: Array, draws: Float[Array, "n d+k"], steps: Array | None = None
) -> Frame:
    """Return frames after a number of Runge--Kutta steps, or of the source as it is."""
    if steps is None:
        return jax.vmap(lambda x0: source.frame(tau, x0))(draws)
    return jax.vmap(lambda x0: source.frame_after(steps, tau, x0, _counted))(draws)


def _difference(found: Frame, best: Frame) -> float:
    """Return the difference of all but the rarest frames, in widths of the better ones."""
    inverse = jnp.linalg.inv(best.factor)
    mean = jnp.linalg.norm(jnp.einsum("nij,nj->ni", inverse, found.mean - best.mean), axis=1)
    factor = jnp.linalg.norm(inverse @ (found.factor - best.factor), axis=(1, 2))
    errors = np.nan_to_num(np.asarray(jnp.maximum(mean, factor)), nan=np.inf)
    return float(np.sort(errors)[int((1 - _RARE) * len(errors))])


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


def _along(moments: Any, length: Array, rate: Any) -> Any:
    return jax.tree.map(lambda value, slope: value + length * slope, moments, rate)


class _Averages(NamedTuple):
    """Means under a normal law of drift, its Jacobian, and the covariance in the basis."""

    drift: Float[Array, " d"]
    jacobian: Float[Array, "d d"]
    noise: Float[Array, "d d"]


def factor_at(covariance: Float[Array, "d d"], tau: Float[Array, ""]) -> Float[Array, "d d"]:
    """Return the Cholesky factor of a covariance of order `tau`, for any `tau`."""
    return jnp.sqrt(tau) * cholesky(covariance / tau)
