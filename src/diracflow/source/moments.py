r"""Gaussian moment closure for every start by itself, also where noise is degenerate.

Mean and covariance follow $m' = E[b]$, $C' = E[\nabla b]C + CE[\nabla b]^\top + E[\Sigma]$ under
$N(m, C)$ with $C = 0$ at the start. Exact for linear SDEs; elsewhere it keeps to each start's own
path, as along a limit cycle. Where a density splits in two it stays with one of the parts, which
leaves the other far outside: there the common width of `ClosureSource` serves better.

A fixed number of exponential steps, equal in $\sqrt\tau$, each exact for the equation linearised in
its middle: no drift is too stiff. Where the time of the start varies, and coefficients thus depend
on time, Simpson's rule takes account of how they change along a step.

**Degenerate noise.** Where noise enters some components only, $\Sigma\tau$ is singular and an Euler
step has no density. The first step here is the linearised equation's (Ozaki's): its covariance
$\int_0^\tau e^{As}\Sigma e^{A^\top s}ds$ is regular if noise reaches the other components through
the drift (Kalman's condition). Their widths are of order $\tau^{3/2}$, $\tau^{5/2}$, ... beside
$\tau^{1/2}$. No digits are lost to that: the integral is a sum of terms that agree in sign entry by
entry, and rounding in Cholesky's algorithm does not depend on the scale of rows and columns. This
holds if the axes themselves are wide or narrow; else covariances are taken along a `basis` that is.
Relative errors are then $\epsilon/\tau$, instead of $\epsilon/\tau^2$.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from ..equation.moving_frame import Frame
from ..equation.small_matrices import cholesky
from ..sde.conditioning import Given, given
from ..sde.linear_step import linear_step
from ..sde.sde import SDE
from .ensemble import nodes
from .gaussian import AbstractGaussianSource

# Steps of the closure. Where the time of the start varies more of them are needed to follow how
# coefficients change; elsewhere 24 gave the same forcing as 12, within a hundredth wherever it
# exceeds 1e-3, on Langevin and van der Pol equations.
_STEPS, _STEPS_IN_TIME = 12, 24
# Halvings within a step: exact to rounding up to a product of 150 of slopes and horizon.
_DOUBLINGS = 8
# What is left of a unit vector that counts as none.
_ALONG = 1e-9


class MomentSource(AbstractGaussianSource):
    """Mean and covariance by moment closure.

    `basis`: an orthogonal matrix whose columns sort directions by the order in which noise reaches
    them, the last ones first; the axes themselves by default. See `graded_basis`.
    """

    sde: SDE
    start_time: float | None = eqx.field(static=True, default=0.0)
    basis: Float[np.ndarray, "d d"] | None = None

    def frame(self, tau: Float[Array, ""], x0: Float[Array, " d+k"]) -> Frame:
        """Mean and Cholesky factor of the closed moments."""
        known = self.given(x0)
        steps = _STEPS if self.start_time is not None else _STEPS_IN_TIME

        def step(moments: _Moments, index: Array) -> tuple[_Moments, None]:
            before, after = (tau * (i / steps) ** 2 for i in (index, index + 1))
            return self._step(known, moments, before, after - before), None

        x, length = known.start, tau / steps**2
        start = _Moments(x, jnp.zeros((len(x), len(x)), x.dtype))
        # Apart from the others: the factor of a covariance that vanishes has no derivative.
        averages = self._averages(known, x, start.covariance, length / 2)
        change = self._change(known, x, start.covariance, (0.0, length), averages)
        first = self._after(start, averages, length, change)
        last, _ = jax.lax.scan(step, first, jnp.arange(1, steps, dtype=x0.dtype))
        return Frame(last.mean, self._lower(self._from_basis(_factor(last.covariance, tau))))

    def _step(self, given: Given, moments: "_Moments", tau: Array, length: Array) -> "_Moments":
        """A step with averages half way, of second order."""
        spread = self._from_basis(_factor(moments.covariance, tau))
        early = self._averages(given, moments.mean, spread, tau)
        middle, half_way = self._after(moments, early, length / 2), tau + length / 2
        spread = self._from_basis(_factor(middle.covariance, half_way))
        averages = self._averages(given, middle.mean, spread, half_way)
        change = self._change(given, middle.mean, spread, (tau, tau + length), averages)
        # The drift where the step begins, by the line through the middle.
        drift = averages.drift + averages.slope @ (moments.mean - middle.mean)
        return self._after(moments, averages._replace(drift=drift), length, change)

    def _averages(self, given: Given, mean: Array, spread: Array, tau: ArrayLike) -> "_Averages":
        sde, time = given.sde, given.start_time + jnp.asarray(tau, mean.dtype)
        points = nodes(mean, spread)

        def at(x: Array) -> tuple[Array, Array, Array]:
            slope = jax.jacfwd(lambda y: sde.drift(time, y))(x)
            # Turned before it is squared: what it lacks stays small twice.
            columns = self._to_basis(sde.diffusion(time, x))
            return sde.drift(time, x), slope, columns @ columns.T

        return _Averages(*(jnp.mean(values, axis=0) for values in jax.vmap(at)(points)))

    def _change(
        self,
        given: Given,
        mean: Array,
        spread: Array,
        ends: tuple[ArrayLike, ArrayLike],
        middle: "_Averages",
    ) -> "tuple[_Averages, _Averages] | None":
        """How averages at the ends of a step differ from those half way, the law being fixed."""
        if self.start_time is not None:
            return None
        early, late = (self._averages(given, mean, spread, tau) for tau in ends)
        return jax.tree.map(jnp.subtract, early, middle), jax.tree.map(jnp.subtract, late, middle)

    def _after(
        self,
        moments: "_Moments",
        averages: "_Averages",
        length: Array,
        change: "tuple[_Averages, _Averages] | None" = None,
    ) -> "_Moments":
        """Moments after a step of the linearised equation."""
        turned = self._to_basis(self._to_basis(averages.slope).T).T
        step = linear_step(turned, averages.noise, length, _DOUBLINGS)
        transfer = jnp.eye(len(turned), dtype=turned.dtype) + step.change
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
        """The lower triangular factor of the same covariance."""
        if self.basis is None:
            return factor
        upper = jnp.linalg.qr(factor.T, mode="r")
        return upper.T * jnp.sign(jnp.diag(upper))[None]


def graded_basis(
    sde: SDE, start_time: float | None, x0: Float[np.ndarray, " d+k"]
) -> Float[np.ndarray, "d d"] | None:
    """The basis in which noise reaches the components one after another, at a start.

    `None` if it does so along the axes, as where it drives velocities, or reaches all at once.
    """
    with jax.enable_x64(True):
        member, x, time = given(sde, start_time, jnp.asarray(x0))
        block = np.asarray(member.diffusion(time, x))
        slope = np.asarray(jax.jacfwd(lambda y: member.drift(time, y))(x))
    if np.linalg.matrix_rank(block) == len(slope):
        return None
    blocks = [block]
    for _ in range(len(slope) - 1):
        blocks.append(slope @ blocks[-1])
    basis = _orthonormal(np.concatenate(blocks, axis=1))[:, ::-1]
    axes = np.sort(np.abs(basis), axis=0)[:-1] < _ALONG
    return None if axes.all() else basis


def _orthonormal(columns: Float[np.ndarray, "d k"]) -> Float[np.ndarray, "d d"]:
    """Directions that the columns add one after another, and any others."""
    found: list[np.ndarray] = []
    for column in (*columns.T, *np.eye(len(columns))):
        rest = column.copy()
        for _ in range(2):  # once more for the sake of rounding
            for direction in found:
                rest -= (direction @ rest) * direction
        if np.linalg.norm(rest) > _ALONG * float(np.linalg.norm(column)):
            found.append(rest / np.linalg.norm(rest))
    return np.stack(found[: len(columns)], axis=1)


class _Moments(NamedTuple):
    mean: Float[Array, " d"]
    covariance: Float[Array, "d d"]  # in the basis


class _Averages(NamedTuple):
    """Means of drift, its slopes and, in the basis, the noise's covariance under a normal law."""

    drift: Float[Array, " d"]
    slope: Float[Array, "d d"]
    noise: Float[Array, "d d"]


def _factor(covariance: Float[Array, "d d"], tau: Float[Array, ""]) -> Float[Array, "d d"]:
    """Cholesky factor of what is of the order of `tau`, however short."""
    return jnp.sqrt(tau) * cholesky(covariance / tau)
