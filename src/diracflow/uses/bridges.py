r"""Paths between two known points.

Conditioned on $X(t) = x_1$, the process $dX = b\,dt + \sigma\,dW$ has the drift
$b + \Sigma\nabla_x\log\rho(x_1 | t - s, x)$: Doob's transform. Steps of this equation are proposals
$q_k$; importance weights correct for their finite length and for errors of $\rho$. With times
$0 = s_0 < \dots < s_n = t$, steps $h_k = s_{k+1} - s_k$ and a transition $p_h$ over one step, the
target is the chain of these transitions conditioned to end at $x_1$,

$$\rho(x_1 | h_{n-1}, y_{n-1}) \prod_{k<n-1} p_{h_k}(y_{k+1} | y_k),\qquad y_0 = x_0,$$

and the weight of a path is this over $\prod_{k<n-1} q_k(y_{k+1} | y_k)$. The density guides every
step but enters the target over the last step only, where it is almost Gaussian. Times are
$s_k = t - t(1 - k/n)^2$, since the guiding drift grows as $1/(t - s)$.

If the state is constrained to a domain, paths are simulated in unconstrained coordinates, so that
none leaves the domain. A path is at $y$, a time $r$ before it reaches $x_1$. Its next point $y'$, a
time $h$ later, is drawn from a Gaussian that depends on where the noise enters.

**Noise in every component.** The proposal has the guided mean $y + h(b + \Sigma\nabla\log\rho)$ and
the covariance $\Sigma h(r - h)/r$ of a Brownian bridge. A Brownian motion is bridged exactly by
steps of any length.

**Degenerate noise.** There the proposal above has no density. The target density of $y'$ is
$p_h(y' | y)\,\rho(x_1 | r - h, y')$ up to a constant. If both factors are Gaussian,
$p_h = N(m, LL^\top)$ and, linearised at $m$, $\rho = N(x_1; \Phi y' + \dots, RR^\top)$, then in
$y' = m + L\zeta$ it is normal with precision $I + B^\top B$, $B = R^{-1}\Phi L$. Both Gaussians
come from moment closure; the mean uses the score of the density at $m$. Linear SDEs are bridged
exactly by steps of any length. The standard deviations of the components scale with
different powers of $h$; in $\zeta$ all numbers are of order one.
"""

import abc
from collections.abc import Callable
from typing import Any, Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from ..distribution.lazy_plot import Drawn
from ..equation.moving_frame import Frame
from ..sde.argument_checks import checked_count, checked_key, checked_one_point, real_numbers
from ..sde.chart import Chart
from ..sde.coefficient_checks import is_degenerate_at
from ..sde.domains import require_inside
from ..sde.parameters import Params
from ..sde.sde import SDE
from ..source.gaussian_source import (
    AbstractGaussianSource,
    EulerSource,
    SourceDensity,
    standard_log_prob,
)
from ..source.moments import MomentSource, graded_basis
from ..transition.charted_density import MappedDensity
from ..transition.transition_density import AbstractTransitionDensity, require_density
from .underlying_sde import (
    Conditioning,
    began_at,
    chart_of,
    check_start_times,
    conditioning_at,
    equation_of,
    member_of,
    require_homogeneous,
    require_one_time,
    scalars,
)
from .weights import WeightsVanished, effective_fraction, systematic


class Bridge(Drawn, eqx.Module):
    """Weighted paths from `x0` to `x1`; `plot` draws the median and the 90 % band."""

    times: Float[Array, " steps+1"]
    paths: Float[Array, "paths steps+1 d"]
    log_weights: Float[Array, " paths"]
    outside: float  # fraction of the points that lie outside the start law of the density

    @property
    def weights(self) -> Float[Array, " paths"]:
        """Normalised weights, which sum to one."""
        return jax.nn.softmax(self.log_weights)

    @property
    def effective_share(self) -> float:
        """Effective sample size divided by the number of paths."""
        return float(effective_fraction(self.weights))

    @property
    def log_density(self) -> float:
        r"""Estimate of $\log\rho(x_1 | t, x_0)$: the logarithm of the mean weight.

        The mean weight is unbiased for the target chain, so it can also be used to check the
        density that guided the paths.
        """
        count = len(self.log_weights)
        return float(jax.nn.logsumexp(self.log_weights) - jnp.log(count))

    def mean(self, f: Callable[[Float[Array, "steps+1 d"]], Array]) -> Array:
        """Return the conditional mean of `f`, a function of one path."""
        return jnp.tensordot(self.weights, jax.vmap(f)(self.paths), axes=1)

    def resample(self, key: PRNGKeyArray, count: int) -> Float[Array, "count steps+1 d"]:
        """Draw `count` equally weighted paths, with repetition, by systematic resampling."""
        u = jr.uniform(checked_key(key))
        return self.paths[systematic(u, self.weights, checked_count("count", count))]


def bridge(
    key: PRNGKeyArray,
    density: AbstractTransitionDensity,
    x0: Float[ArrayLike, " d"],
    x1: Float[ArrayLike, " d"],
    t: float,
    steps: int = 200,
    paths: int = 1000,
    *,
    sde: SDE | None = None,
    local: AbstractTransitionDensity | None = None,
    **conditioning: Unpack[Conditioning],
) -> Bridge:
    r"""Simulate the SDE conditioned on $X(0) = x_0$ and $X(t) = x_1$.

    **Arguments:**

    - `key`: a random key.
    - `density`: a transition density, learned or exact. Its start score guides the paths.
    - `x0`, `x1`: the two ends, with all components known.
    - `t`: time between the ends, within the density's horizon.
    - `steps`: number of time steps, at least two. They shorten towards the end.
    - `paths`: number of paths.
    - `sde`: the equation, required if the density does not carry its own. Its coefficients must
        not depend on time, unless the density depends on the start time.
    - `local`: the transition $p_h$ over one step. The default is an Euler--Maruyama step (moment
        closure for degenerate noise), which has an error of first order in the step. With
        `local=density` there is no discretisation error, but the density must be accurate at all
        short times. Keep the default if the noise depends on the state: the weights of Gaussian
        proposals for the true transitions do not improve as steps become shorter.
    - `params`: parameters of the SDE, if the density has any.
    - `start_time`: time at which the path is at `x0`, if the density depends on it.

    **Returns:**

    A `Bridge` with `.times`, `.paths`, `.log_weights`, `.mean(f)`, `.resample(key, count)`,
    `.log_density` and `.effective_share`, which is far below one if the density guides badly.

    >>> import jax
    >>> import diracflow as df
    >>> model = df.models.benes()
    >>> ends = [0.0, 0.0], [1.0, 1.0]
    >>> df.bridge(jax.random.key(0), model.exact, *ends, 1.0, 20, 8, sde=model.sde).paths.shape
    (8, 21, 2)
    """
    key, steps = checked_key(key), checked_count("steps", steps, least=2)
    paths = checked_count("paths", paths)
    checked = guided(density, (x0, x1), t, sde, local, **conditioning)
    return _weighted_paths(density, t, checked, key, steps, paths)


class AbstractProposal(eqx.Module):
    """Gaussian proposals for the steps of a path that ends at `end`."""

    density: AbstractTransitionDensity  # its start score guides the path
    local: AbstractTransitionDensity  # the target transition over one step
    params: dict[str, Array]
    arrival: Float[Array, ""]  # time at which the path reaches its end
    end: Float[Array, " d"]
    source: AbstractGaussianSource  # the Gaussian of one unconditioned step

    @abc.abstractmethod
    def frames(self, y: Float[Array, "n d"], r: Float[Array, ""], h: Float[Array, ""]) -> Frame:
        """Return the proposals from the points `y`: `r` is the remaining time, `h` the step."""

    def step(
        self, key: PRNGKeyArray, y: Float[Array, "n d"], r: Float[Array, ""], h: Float[Array, ""]
    ) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
        """Return the next points, and the log-ratios of target to proposal there."""
        frames = self.frames(y, r, h)
        noise = jr.normal(key, y.shape, y.dtype)
        new = jax.vmap(Frame.restore)(frames, noise)
        log_q = jax.vmap(lambda f, z: standard_log_prob(z) - f.log_det())(frames, noise)
        return new, self.local.log_prob(new, h, y, **self.keywords(self.local, r)) - log_q

    def keywords(self, density: AbstractTransitionDensity, r: Array) -> dict[str, Any]:
        """Return the keyword arguments of a query that starts a time `r` before the end."""
        return conditioning_at(density, self.params if density.params else {}, self.arrival - r)


class GuidedEuler(AbstractProposal):
    """Euler steps of Doob's transform, with the covariance of a Brownian bridge."""

    def frames(self, y: Float[Array, "n d"], r: Float[Array, ""], h: Float[Array, ""]) -> Frame:
        sde, now = self.source.sde, self.arrival - r

        def frame(y: Float[Array, " d"], score: Float[Array, " d"]) -> Frame:
            covariance = sde.covariance(now, y)
            guided = sde.drift(now, y) + covariance @ score
            factor = jnp.sqrt(h * (r - h) / r) * jnp.linalg.cholesky(covariance)
            return Frame(y + h * guided, factor)

        scores = self.density.start_score(self.end, r, y, **self.keywords(self.density, r))
        return jax.vmap(frame)(y, scores)


class GuidedLinearised(AbstractProposal):
    """Steps of the linearised SDE, conditioned on the end."""

    def frames(self, y: Float[Array, "n d"], r: Float[Array, ""], h: Float[Array, ""]) -> Frame:
        free = jax.vmap(lambda y: self._free(h, y, r))(y)
        later = self.keywords(self.density, r - h)
        scores = self.density.start_score(self.end, r - h, free.mean, **later)
        return jax.vmap(lambda free, score: self._conditioned(free, score, r - h))(free, scores)

    def _free(self, h: Array, y: Float[Array, " d"], r: Array) -> Frame:
        """Return the unconditioned Gaussian after a time `h`, from a time `r` before the end."""
        known = self.source.start_time is not None
        return self.source.frame(h, y if known else jnp.append(y, self.arrival - r))

    def _conditioned(self, free: Frame, score: Float[Array, " d"], left: Float[Array, ""]) -> Frame:
        eye = jnp.eye(len(score), dtype=score.dtype)
        ahead = self._free(left, free.mean, left)
        transfer = jax.jacfwd(lambda x: self._free(left, x, left).mean)(free.mean)
        pull = solve_triangular(ahead.factor, transfer @ free.factor, lower=True)
        # A precision U U^T with U upper triangular has the covariance N N^T with N = U^-T lower.
        upper = jnp.linalg.cholesky((eye + pull.T @ pull)[::-1, ::-1])[::-1, ::-1]
        narrowing = solve_triangular(upper, eye, lower=False).T
        shift = narrowing @ (narrowing.T @ (free.factor.T @ score))
        return Frame(free.mean + free.factor @ shift, free.factor @ narrowing)


@eqx.filter_jit
def simulate_paths(
    proposal: AbstractProposal, key: PRNGKeyArray, x0: Array, remaining: Array, paths: int
) -> tuple[Float[Array, "steps-1 paths d"], Float[Array, " paths"]]:
    """Return the points of all paths between the two ends, and their log-weights."""
    r = remaining[:-2]
    h = r - remaining[1:-1]

    def step(state: tuple, inputs: tuple) -> tuple[tuple, Array]:
        y, log_weights = state
        new, log_ratio = proposal.step(inputs[0], y, *inputs[1:])
        return (new, log_weights + log_ratio), new

    first = jnp.broadcast_to(x0, (paths, len(x0))), jnp.zeros(paths, x0.dtype)
    (y, log_weights), inner = jax.lax.scan(step, first, (jr.split(key, len(r)), r, h))
    last = proposal.keywords(proposal.density, remaining[-2])
    log_prob = proposal.density.log_prob(proposal.end, remaining[-2], y, **last)
    return inner, log_weights + log_prob


def guided(
    density: AbstractTransitionDensity,
    ends: tuple[ArrayLike, ArrayLike],
    t: float,
    sde: SDE | None,
    local: AbstractTransitionDensity | None,
    params: Params | None = None,
    start_time: float | None = None,
) -> tuple[AbstractProposal, Chart, Float[Array, "2 d"], float]:
    """Check the arguments of `bridge`. Return proposal, coordinates, both ends and start time."""
    values = scalars(density, params)
    equation = member_of(equation_of(density, sde), values)
    start, end = (_checked_end(equation, f"x{i}", point) for i, point in enumerate(ends))
    if local is not None:
        require_density(local, "local")
        if local.dim != density.dim:
            raise ValueError(f"`local` must have {density.dim} components; it has {local.dim}.")
    began, known = began_at(density, start_time, "start_time"), density.start_time
    require_one_time("t", t)
    log_prob = float(density.log_prob(end, t, start, params=values, start_time=start_time))
    if not np.isfinite(log_prob):
        raise ValueError(
            f"`x1` cannot be reached: its log-density at t={t:g} from `x0` is {log_prob}. Choose "
            "an end point where the density is positive."
        )
    if known is not None:
        require_homogeneous(equation, began, float(t), jnp.stack([start, end, (start + end) / 2]))
    chart, both = chart_of(density, equation), jnp.stack([start, end])
    mapped = lambda law: law if chart.plain else MappedDensity(law, chart)
    free, arrival = chart.equation(), jnp.asarray(began + t, start.dtype)
    y1 = chart.start(end)
    kind: type[AbstractProposal] = GuidedEuler
    source: EulerSource | MomentSource = EulerSource(free, known)
    if is_degenerate_at(equation, began, both):
        at_end = y1 if known is not None else jnp.append(y1, arrival)
        kind = GuidedLinearised
        source = MomentSource(free, known, graded_basis(free, known, np.asarray(at_end)))
    one_step = SourceDensity(source) if local is None else mapped(local)
    return kind(mapped(density), one_step, values, arrival, y1, source), chart, both, began


def _weighted_paths(
    density: AbstractTransitionDensity,
    t: float,
    guided: tuple[AbstractProposal, Chart, Float[Array, "2 d"], float],
    key: PRNGKeyArray,
    steps: int,
    paths: int,
) -> Bridge:
    proposal, chart, (start, end), began = guided
    remaining = t * (1 - jnp.arange(steps + 1, dtype=start.dtype) / steps) ** 2
    check_start_times(density, began + (t - remaining[:-1]), "bridge")
    inner, log_weights = simulate_paths(proposal, key, chart.start(start), remaining, paths)
    inner = inner if chart.plain else _states(chart, inner)
    # The chain ends with a density in the coordinates of the chart.
    log_weights = log_weights + chart.log_slope(end)
    undefined = int(jnp.sum(jnp.isnan(log_weights)))
    if undefined:
        raise WeightsVanished(
            f"{undefined} of {paths} paths reached points where the coefficients or the density "
            "are not defined. Increase `steps`, or choose ends further inside the domain."
        )
    if not bool(jnp.any(jnp.isfinite(log_weights))):
        raise WeightsVanished(
            "All paths have weight zero: the density guides them to where the SDE has no mass. "
            "Increase `steps`, or choose ends closer to the bulk of the start law."
        )
    outside = density.outside(inner, **proposal.keywords(density, remaining[1:-1, None]))
    first, last = (jnp.broadcast_to(x, (1, *inner.shape[1:])) for x in (start, end))
    points = jnp.swapaxes(jnp.concatenate([first, inner, last]), 0, 1)
    return Bridge(t - remaining, points, log_weights, float(jnp.mean(outside)))


@eqx.filter_jit
def _states(chart: Chart, y: Float[Array, "steps paths d"]) -> Float[Array, "steps paths d"]:
    return jax.vmap(jax.vmap(chart.from_real))(y)


def _checked_end(sde: SDE, name: str, value: ArrayLike) -> Float[Array, " d"]:
    point = jnp.asarray(real_numbers(name, value))
    if point.shape != (sde.dim,):
        raise ValueError(
            f"`{name}` must be one point of shape ({sde.dim},); got {point.shape}. For "
            "several ends call `bridge` for each; it is compiled once."
        )
    if bool(jnp.any(jnp.isnan(point))):
        raise ValueError(
            f"`{name}` contains NaN. All components of both ends must be known: conditioning on "
            "some of them needs an integral over the others. For partial observations use "
            "`diracflow.filter`."
        )
    checked_one_point(name, point, sde.dim)
    require_inside(sde.domain, point, name)
    return point
