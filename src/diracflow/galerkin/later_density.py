r"""The log-density at a later time, by the Chapman--Kolmogorov equation.

If coefficients do not depend on time, the density after a further time $\delta$ is
$$\rho(x | t+\delta, x_0) = \int\rho(x | \delta, y)\,\rho(y | t, x_0)\,dy.$$
The integral is a mean over points $y$ with importance weights, drawn from a Gaussian law. The
point $x$ determines $y$ up to the noise of the short time, so the integrand has one peak, even if
the density at $t$ has several modes. Both densities come from maps to standard normal noise; let
$u(y)$ be both values. A few Gauss--Newton iterations find the peak, and $(\nabla u)^\top\nabla u$
there is the inverse covariance. The points are a Sobol set, shifted at random for each pair
$(x_0, x)$, and the same set reflected at the peak.

Nothing is differentiated twice and no drift is evaluated, so that a point far out has no more
influence than others, and no equation is stiff.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular
from jax.scipy.special import logsumexp, ndtri
from jaxtyping import Array, Float

from ..equation.small_matrices import cholesky
from ..flow.ansatz import AbstractAnsatz
from ..source.gaussian_source import standard_log_prob
from .collocation import CACHED, Draws, Points, centred, evaluate_log_density
from .rows import AbstractRows, Rows, evaluate, streamed
from .velocity import normal_equations

# Gauss--Newton iterations for the peak of the integrand, and the length of a short step, in
# standard deviations for each dimension. Where noise is small the first guess is many of these off,
# and only whole steps get there; where it is large, whole steps may overshoot. The one that ends
# higher is taken.
_ITERATIONS, _SHORT = 3, 2.0
# Proposals are wider than the Gaussian at the peak, so that weights are bounded.
_WIDER = 1.1
# Pairs that are evaluated together: each has many intermediate points.
_TOGETHER = 64


class DensityAt(eqx.Module):
    """The density of an ansatz at one time."""

    ansatz: AbstractAnsatz
    tau: Float[Array, ""]

    def to_noise(self, x: Array, x0: Array) -> tuple[Array, Array]:
        """Return the noise of which the ansatz makes `x`, and the log-density at `x`."""
        noise, log_det = self.ansatz.to_noise(x, self.tau, x0)
        return noise, standard_log_prob(noise) + log_det

    def place(self, noise: Array, x0: Array) -> tuple[Array, Array, Array]:
        """Return the state that the ansatz makes of `noise`, its coordinates, and a constant.

        The constant is the part of the log-density that `log_density` of the ansatz leaves out.
        """
        x, clock = self.ansatz.from_noise(noise, self.tau, x0), jnp.sqrt(self.tau)
        y = self.ansatz.coordinates(x, clock, x0)
        left_out = self.ansatz.log_prob(x, self.tau, x0) - self.ansatz.log_density(y, clock, x0)
        return x, y, left_out


class Target(NamedTuple):
    """Points of a density at a later time, and its values there, up to terms without parameters."""

    points: Points
    values: Float[Array, " n"]


def later_log_density(
    kernel: DensityAt,
    current: DensityAt,
    x: Float[Array, " d"],
    x0: Float[Array, " d+k"],
    cube: Float[Array, "k d"],
) -> Float[Array, ""]:
    """Return the log-density at one point, after the time of the kernel.

    **Arguments:**

    - `kernel`: the density over the further time.
    - `current`: the density now.
    - `x`, `x0`: the point and the conditioning vector.
    - `cube`: points of the unit cube.
    """
    dim = len(x)
    starting_at = lambda y: jnp.concatenate([y, x0[dim:]])

    def both(y: Array) -> tuple[Array, Array]:
        """Return the noise of both densities, and the logarithm of the integrand."""
        last, log_last = kernel.to_noise(x, starting_at(y))
        first, log_first = current.to_noise(y, x0)
        return jnp.concatenate([last, first]), log_last + log_first

    def iteration(y: Array, _: None) -> tuple[Array, Array]:
        along = lambda v: jax.jvp(both, (y,), (v,))[1]
        jacobian, gradient = jax.vmap(along, out_axes=(1, 0))(jnp.eye(dim, dtype=y.dtype))
        factor = cholesky(jacobian.T @ jacobian)
        step = cho_solve((factor, True), gradient)
        size = jnp.linalg.norm(factor.T @ step)
        short = _SHORT * jnp.sqrt(jnp.asarray(dim, y.dtype)) / jnp.maximum(size, 1e-300)
        shares = jnp.stack([jnp.minimum(1.0, short), jnp.ones_like(short)])
        ends = y[None] + shares[:, None] * step[None]
        heights = jax.vmap(lambda y: both(y)[1])(ends)
        return jnp.where(heights[1] > heights[0], ends[1], ends[0]), factor

    # Begin where the mean of the kernel has moved as far as from `x` itself.
    ahead = kernel.ansatz.from_noise(jnp.zeros(dim, x.dtype), kernel.tau, starting_at(x))
    peak, factors = jax.lax.scan(iteration, 2 * x - ahead, None, length=_ITERATIONS)
    factor = factors[-1]
    half = ndtri(jnp.clip(cube, 1e-12, 1 - 1e-12))
    normal = jnp.concatenate([half, -half])
    away = _WIDER * solve_triangular(factor, normal.T, lower=True, trans=1).T
    log_integrand = jax.vmap(lambda y: both(y)[1])(peak[None] + away)
    log_det = jnp.sum(jnp.log(jnp.diag(factor))) - dim * jnp.log(_WIDER)
    log_weights = log_integrand - jax.vmap(standard_log_prob)(normal) - log_det
    return logsumexp(log_weights) - jnp.log(len(normal))


@eqx.filter_jit
def later_target(
    kernel: DensityAt,
    current: DensityAt,
    guess: DensityAt,
    draws: Draws,
    shifts: Float[Array, "n d"],
    cube: Float[Array, "k d"],
) -> Target:
    """Return points of a guess of the density at the later time, and the log-density there.

    `shifts` are uniform random numbers, one row for each draw.
    """
    one = eqx.Partial(_later_rows, kernel, current, guess, cube)
    y, values = draws.layout.each(one, draws.x0, draws.noise, shifts)
    return Target(Points(draws.x0, y, draws.weight, draws.layout), values)


def _later_rows(
    kernel: DensityAt,
    current: DensityAt,
    guess: DensityAt,
    cube: Array,
    x0: Array,
    noise: Array,
    shifts: Array,
) -> tuple[Array, Array]:
    def one(row: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        x0, noise, shift = row
        x, y, constant = guess.place(noise, x0)
        value = later_log_density(kernel, current, x, x0, jnp.mod(cube + shift[None], 1.0))
        return y, value - constant

    return jax.lax.map(one, (x0, noise, shifts), batch_size=_TOGETHER)


@eqx.filter_jit
def source_target(source: DensityAt, guess: DensityAt, draws: Draws) -> Target:
    """Return points of a guess of the density of a source, and its log-density there."""
    one = eqx.Partial(_source_rows, source, guess)
    y, values = draws.layout.each(one, draws.x0, draws.noise)
    return Target(Points(draws.x0, y, draws.weight, draws.layout), values)


def _source_rows(
    source: DensityAt, guess: DensityAt, x0: Array, noise: Array
) -> tuple[Array, Array]:
    def one(row: tuple[Array, Array]) -> tuple[Array, Array]:
        x0, noise = row
        x, y, constant = guess.place(noise, x0)
        return y, source.to_noise(x, x0)[1] - constant

    return jax.lax.map(one, (x0, noise), batch_size=CACHED)


@eqx.filter_jit
def corrections(
    ansatz: AbstractAnsatz,
    theta: Float[Array, " m"],
    clock: Float[Array, ""],
    target: Target,
    regularisations: Float[Array, " k"],
) -> Float[Array, "k m"]:
    """Return Gauss--Newton corrections of the parameters, one for each regularisation."""
    normal = normal_equations(_rows(ansatz.at(theta), clock, target))
    none = jnp.zeros_like(theta)
    return jax.lax.map(lambda strength: normal.solve(strength, none), regularisations)


def _rows(ansatz: AbstractAnsatz, clock: Array, target: Target) -> AbstractRows:
    points = target.points
    missing = centred(target.values - evaluate_log_density(ansatz, clock, points), points)
    if points.layout.chunk is not None:
        return streamed(ansatz, clock, points, missing)
    jacobian = evaluate(ansatz.parameter_score, clock, points)
    return Rows(jacobian=jacobian, forcing=missing, layout=points.layout)


@eqx.filter_jit
def distances(
    ansatz: AbstractAnsatz, thetas: Float[Array, "k m"], clock: Float[Array, ""], target: Target
) -> Float[Array, " k"]:
    """Return root mean squares of target minus log-density, for several parameters."""
    points = target.points

    def one(theta: Float[Array, " m"]) -> Float[Array, ""]:
        missing = target.values - evaluate_log_density(ansatz.at(theta), clock, points)
        return jnp.sqrt(jnp.mean(centred(missing, points) ** 2))

    return jax.lax.map(one, thetas)
