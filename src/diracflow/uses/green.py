r"""Densities from an arbitrary initial law.

The transition density is the Green's function of the Fokker--Planck equation, so after
a time $t$ a law $p_0$ becomes $\int \rho(x | t, x_0)\,p_0(x_0)\,dx_0$. We
average over starts, in log space, since transition densities underflow.

At short times few draws of $p_0$ lie where $\rho(x | t, \cdot)$ has its mass. Where the density of
$p_0$ is known, half of the starts are therefore drawn near $x$, and all are weighted by $p_0$ over
the density they were drawn from. As a function of $x_0$ the transition density is, for short times,
nearly a Gaussian about $x - t\,b$ with covariance $t\,\Sigma$. One Newton step from $x_0 = x$ finds
it, and is exact for linear SDEs at any time.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.special import logsumexp, ndtr, ndtri
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from ..distribution.abstract_distribution import POINTS, AbstractDistribution, Traits
from ..distribution.weighted_points import WeightedPoints
from ..equation.moving_frame import Frame
from ..sde.argument_checks import checked_count, checked_point, real_numbers
from ..sde.delegation import delegated
from ..sde.laws import AbstractLaw
from ..sde.parameters import Params
from ..sde.quasi_random import sobol
from ..source.gaussian_source import standard_log_prob
from ..transition.batching import in_batches
from ..transition.programs import StartMixture, images, log_probs
from ..transition.transition_density import AbstractTransitionDensity, checked_query
from .underlying_sde import require_one_time, scalars

# Pairs of query point and start evaluated at once.
_CHUNK = 2**16
# Independently scrambled quasi-random sets of starts; their spread is the standard error.
_SETS = 8
# Variances are enlarged by this factor, so that the tails of the Gaussian lie above those of the
# density and importance weights stay bounded.
_WIDENING = 1.3
# Simulated paths from all draws, if the density averages over intermediate states.
_PATHS = 4096


class AbstractPropagated(AbstractDistribution):
    """The law at time `t` of the process started from an initial law."""

    density: AbstractTransitionDensity
    law: AbstractLaw | None  # at the start; `None` if it is known by draws alone
    draws: Float[Array, "*n d"]  # of the initial law
    t: Float[Array, ""]
    tail: Float[Array, " k"]  # parameters and start time, which follow each start

    dim = delegated("density.dim")
    domain = delegated("density.domain")

    @property
    def outside(self) -> float:
        """Part of the initial law outside the starts that the density was made for."""
        return float(jnp.mean(self.density.outside(self.draws, **self._keywords)))

    @property
    def starts(self) -> int:
        """Number of starts over which the density at one point is averaged."""
        return self.draws.size // self.dim

    @property
    def _rows(self) -> int:
        """Number of transition densities evaluated at one point."""
        return self.starts

    @abc.abstractmethod
    def _log_estimates(self, x: Float[Array, " d"]) -> Float[Array, " r"]:
        """Return logarithms of independent estimates of the density at one point."""

    def standard_error(self, x: Float[ArrayLike, "*batch d"]) -> Float[Array, "*batch"]:
        """Return the relative standard error of the density at `x`, which is that of `log_prob`."""
        return self._at_points(self._points(x))[1]

    def _log_probs(self, x: Float[Array, "*batch d"]) -> Float[Array, "*batch"]:
        return self._at_points(x)[0]

    def _draw(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "*shape d"]:
        start_key, move_key = jr.split(key)
        if self.law is None:
            x0 = self.draws[jr.randint(start_key, shape, 0, len(self.draws))]
        else:
            x0 = self.law.sample(start_key, shape)
        return self.density.sample(move_key, self.t, x0, **self._keywords)

    def _weighted(self, points: int = POINTS, key: Any = 0) -> WeightedPoints:
        # Cheaper than an integral of the density, which is itself a mean over starts.
        return self._simulated(points, key)

    @property
    def noise_dim(self) -> int:
        return self._traits.jumps + self.density.noise_dim

    @property
    def _traits(self) -> Traits:
        # Lines of noise are fewer than points, and each has one of the draws.
        smooth = self.density.pathwise and self.law is not None
        # The start is selected by one number from draws, and by `dim` numbers from a law.
        return Traits(cheap=False, smooth=smooth, jumps=1 if self.law is None else self.dim)

    def _images(self, noise: Float[Array, "*batch m"]) -> Float[Array, "*batch d"]:
        columns = self._traits.jumps
        u = ndtr(noise[..., :columns])
        if self.law is None:
            rows = self.draws.reshape(-1, self.dim)
            x0 = rows[jnp.minimum((u[..., 0] * len(rows)).astype(int), len(rows) - 1)]
        else:
            x0 = self.law.transport(u)
        return in_batches(
            images, self.density, self.t, noise[..., columns:], _with_tail(x0, self.tail)
        )

    @property
    def _keywords(self) -> dict[str, Any]:
        return self.density._keywords(self.tail)

    def _at_points(self, points: Float[Array, "*batch d"]) -> tuple[Array, Array]:
        mean, error = _means(self, points.reshape(-1, self.density.dim))
        return mean.reshape(points.shape[:-1]), error.reshape(points.shape[:-1])


class PropagatedStarts(AbstractPropagated):
    """Started from fixed starts: draws of the user, or of a law over a long time.

    Over a long time the transition density is wide, so that many starts are near every point.
    """

    mixture: StartMixture  # one group for each independent estimate

    @property
    def _rows(self) -> int:
        return self.mixture.rows

    def _log_estimates(self, x: Float[Array, " d"]) -> Float[Array, " groups"]:
        return self.mixture.log_probs(x)


class PropagatedLaw(AbstractPropagated):
    """Started from a law of known density, by weighted quasi-random starts."""

    law: AbstractLaw
    noise: Float[Array, "sets n d"]  # standard normal, for the Gaussian about each point

    @property
    def starts(self) -> int:
        return 2 * super().starts

    def _log_estimates(self, x: Float[Array, " d"]) -> Float[Array, " sets"]:
        spread = jnp.sqrt(jnp.max(jnp.var(self.draws, axis=(0, 1))))
        state = self.density._at_time(self.t)
        near = reversed_gaussian(self.density, state, x, self.tail, spread)
        log_prob_near = lambda x0: standard_log_prob(near.standardise(x0)) - near.log_det()
        x0 = jnp.concatenate([self.draws, jax.vmap(jax.vmap(near.restore))(self.noise)], axis=1)
        log_p0, log_near = (jax.vmap(jax.vmap(f))(x0) for f in (self.law._log_prob, log_prob_near))
        # Outside the support of the law the transition density need not be defined.
        possible = log_p0 > -jnp.inf
        x0 = jnp.where(possible[..., None], x0, self.draws[0, 0])
        log_rho = log_probs(self.density, self.t, x, _with_tail(x0, self.tail))
        log_drawn = jnp.logaddexp(log_p0, log_near) - jnp.log(2.0)
        log_terms = jnp.where(possible, log_rho + log_p0 - log_drawn, -jnp.inf)
        return logsumexp(log_terms, axis=1) - jnp.log(x0.shape[1])


def reversed_gaussian(
    density: AbstractTransitionDensity,
    state: Any,
    x: Float[Array, " d"],
    tail: Float[Array, " k"],
    widest: Float[Array, ""],
) -> Frame:
    """Return the Gaussian of starts for one end point `x`; `state` is `density._at_time(t)`.

    `tail` is appended to every start. Standard deviations are at most `widest`, for densities that
    hardly depend on the start.
    """

    def log_prob(x0: Float[Array, " d"]) -> Float[Array, ""]:
        return density._log_prob(state, x, jnp.concatenate([x0, tail]))

    gradient, hessian = jax.grad(log_prob)(x), jax.hessian(log_prob)(x)
    # The derivatives are undefined at points that no start reaches; any Gaussian is valid there.
    known = jnp.all(jnp.isfinite(hessian)) & jnp.all(jnp.isfinite(gradient))
    precision, axes = jnp.linalg.eigh(jnp.where(known, -hessian, jnp.eye(len(x))))
    variances = 1 / jnp.maximum(precision, widest**-2)
    step = axes @ (variances * (axes.T @ jnp.where(known, gradient, 0.0)))
    covariance = _WIDENING * axes @ jnp.diag(variances) @ axes.T
    return Frame(x + step, jnp.linalg.cholesky(covariance))


def propagate(
    density: AbstractTransitionDensity,
    law_or_draws: AbstractLaw | Float[ArrayLike, "n d"],
    t: float,
    *,
    draws: int = 4096,
    params: Params | None = None,
    start_time: float | None = None,
) -> AbstractPropagated:
    r"""Solve the Fokker--Planck equation from an initial law $p_0$.

    **Arguments:**

    - `density`: a transition density, learned or exact.
    - `law_or_draws`: the law, such as `diracflow.Normal(0.0, 1.0)` or a `diracflow.Mixture`, or
        independent samples of it, one a row.
    - `t`: time since the start, within the density's horizon.
    - `draws`: number of starts over which each point is averaged, if a law is given; rounded up to
        a power of two, at least sixteen.
    - `params`: parameters of the SDE, if the density has any.
    - `start_time`: the time of the initial law, if the density depends on it.

    **Returns:**

    The law at time `t`, a `diracflow.AbstractDistribution`: `log_prob(x)`, `sample(key, shape)`,
    moments, quantiles, marginals. It also has `standard_error(x)`, the relative standard error of
    the density, and `outside`, the part of the initial law for which the density was not made. With
    a law, all times are accurate. With draws the transition density must be wide compared with the
    distance between them; `standard_error` shows if it is not.
    """
    params = scalars(density, params)
    require_one_time("t", t)
    require_one_time("start_time", start_time)
    if isinstance(law_or_draws, AbstractLaw):
        law = law_or_draws.expand(density.dim)
        return _from_law(density, law, t, params, start_time, draws)
    array = jnp.asarray(real_numbers("law_or_draws", law_or_draws))
    if array.ndim != 2 or array.shape[1] != density.dim or len(array) == 0:
        raise ValueError(f"Draws must have shape (n, {density.dim}) with n > 0; got {array.shape}.")
    checked_point("draws", array, density.dim, finite=True)
    time, starts = checked_query(density, t, params, start_time=start_time, x0=array)
    density, tail = density._restricted(time), starts[0, density.dim :]
    # Independent, whatever the order of the draws; several for each if these are few.
    paths = -(-_PATHS // len(starts)) if density.averages else 1
    noise = jr.normal(jr.key(0), (len(starts), paths, density.noise_dim))
    mixture = density._mean_over_starts(time, starts[:, None], noise)
    return PropagatedStarts(density, None, array, time, tail, mixture)


def _from_law(
    density: AbstractTransitionDensity,
    law: AbstractLaw,
    t: float,
    params: Params | None,
    start_time: float | None,
    count: int,
) -> AbstractPropagated:
    count = checked_count("draws", count)
    # Half of the starts are drawn from the law, half near the point. Sobol sets are balanced at
    # powers of two.
    each = 2 ** int(np.ceil(np.log2(max(1, count / (2 * _SETS)))))
    cubes = np.stack([sobol(jr.key(i), each, 2 * density.dim) for i in range(_SETS)])
    first, second = np.split(cubes, 2, axis=-1)
    draws, noise = law.transport(first), ndtri(second)
    time, starts = checked_query(density, t, params, start_time=start_time, x0=draws)
    density, tail = density._restricted(time), starts[0, 0, density.dim :]
    if density.averages:
        return _from_simulated(density, law, time, tail, 2 * each)
    return PropagatedLaw(density, law, draws, time, tail, noise)


def _from_simulated(
    density: AbstractTransitionDensity, law: AbstractLaw, t: Array, tail: Array, each: int
) -> PropagatedStarts:
    """Return the law at `t` with `each` starts in each set, all of them drawn from the law."""
    # Starts and noise are columns of one set: two sets would be correlated.
    columns = density.dim + density.noise_dim
    cubes = np.stack([sobol(jr.key(i), each, columns) for i in range(_SETS)])
    draws, noise = law.transport(cubes[..., : density.dim]), ndtri(cubes[..., density.dim :])
    mixture = density._mean_over_starts(t, _with_tail(draws, tail), jnp.asarray(noise))
    return PropagatedStarts(density, law, draws, t, tail, mixture)


def _with_tail(x0: Float[Array, "*n d"], tail: Float[Array, " k"]) -> Float[Array, "*n d+k"]:
    return jnp.concatenate([x0, jnp.broadcast_to(tail, (*x0.shape[:-1], len(tail)))], axis=-1)


@eqx.filter_jit
def _means(law: AbstractPropagated, x: Float[Array, "m d"]) -> tuple[Array, Array]:
    """Return the log of the mean estimate and its relative standard error at each point."""

    def at(x: Float[Array, " d"]) -> tuple[Array, Array]:
        parts = law._log_estimates(x)
        log_mean = logsumexp(parts) - jnp.log(len(parts))
        # NaN where the density underflows even in log space: its error is unknown.
        ratios = jnp.exp(parts - log_mean)
        return log_mean, jnp.std(ratios, ddof=1) / jnp.sqrt(len(parts))

    return jax.lax.map(at, x, batch_size=max(1, _CHUNK // law._rows))
