r"""Paths between two known points.

Conditioned on $X(t) = x_1$, the process $dX = b\,dt + \sigma\,dW$ moves with the drift
$b + \Sigma\nabla_x\log\rho(x_1 | t - s, x)$: Doob's transform. Steps of this equation are proposals
$q_k$; weights make up for their finite length and for errors of $\rho$. With times
$0 = s_0 < \dots < s_n = t$, steps $h_k = s_{k+1} - s_k$ and a transition $p_h$ over one step, the
law of the path asked for is the chain of these transitions with its end tied to $x_1$,

$$\rho(x_1 | h_{n-1}, y_{n-1}) \prod_{k<n-1} p_{h_k}(y_{k+1} | y_k),\qquad y_0 = x_0,$$

and a path's weight is this over $\prod_{k<n-1} q_k(y_{k+1} | y_k)$. The density guides everywhere
but enters the target over the last step only, where it is hardly more than a Gaussian. Times are
$s_k = t - t(1 - k/n)^2$, since the pull towards the end grows as $1/(t - s)$.

Where states are constrained to a domain, all this is done in coordinates without ends, so that no
path leaves it.

A proposal has the guided mean $y + h(b + \Sigma\nabla\log\rho)$ and, with $r = t - s_k$, the
covariance $\Sigma h(r - h)/r$ of a Brownian bridge, so that a Brownian motion is bridged exactly
by steps of any length. Where noise does not enter every component these have no density, and steps
of the linearised equation take their place: see `linearised_steps`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from ..equation.moving_frame import Frame
from ..sde.argument_checks import checked_count, checked_key, real_numbers
from ..sde.chart import Chart
from ..sde.coefficient_checks import is_degenerate_at
from ..sde.parameters import Params
from ..sde.sde import SDE
from ..source.euler import EulerSource
from ..source.gaussian_source import standard_log_prob
from ..source.moments import MomentSource, graded_basis
from ..source.source_density import SourceDensity
from ..transition.charted_density import MappedDensity
from ..transition.transition_density import AbstractTransitionDensity, require_density
from .chain import AbstractChain
from .linearised_steps import LinearisedChain
from .underlying_sde import (
    began_at,
    chart_of,
    check_start_times,
    equation_of,
    member_of,
    require_homogeneous,
    scalars,
)
from .weights import WeightsVanished, effective_share, normalised, systematic


class Bridge(eqx.Module):
    """Weighted paths from `x0` to `x1`."""

    times: Float[Array, " steps+1"]
    paths: Float[Array, "paths steps+1 d"]
    log_weights: Float[Array, " paths"]
    outside: float  # share of the points from which the density was not made to start

    @property
    def weights(self) -> Float[Array, " paths"]:
        """Weights of sum one."""
        return normalised(self.log_weights)

    @property
    def effective_share(self) -> float:
        """Share of the paths that unweighted paths of the same accuracy would number."""
        return float(effective_share(self.weights))

    @property
    def log_density(self) -> float:
        r"""Estimate of $\log\rho(x_1 | t, x_0)$: the logarithm of the mean weight.

        The mean is unbiased for the chain whose weights these are, so it also judges the density
        that guided the paths.
        """
        count = len(self.log_weights)
        return float(jax.nn.logsumexp(self.log_weights) - jnp.log(count))

    def mean(self, f: Callable[[Float[Array, "steps+1 d"]], Array]) -> Array:
        """Conditional mean of a function of one path."""
        return jnp.tensordot(self.weights, jax.vmap(f)(self.paths), axes=1)

    def resample(self, key: PRNGKeyArray, count: int) -> Float[Array, "count steps+1 d"]:
        """Paths of equal weight, drawn from these; paths of large weight repeat."""
        return self.paths[systematic(checked_key(key), self.weights, checked_count("count", count))]


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
    params: Params | None = None,
    start_time: float | None = None,
) -> Bridge:
    r"""Paths of the SDE conditioned on $X(0) = x_0$ and $X(t) = x_1$.

    **Arguments:**

    - `key`: of `jax.random.key`.
    - `density`: a transition density, learned or exact; its start score guides the paths.
    - `x0`, `x1`: the two ends, all components of each.
    - `t`: time between them, within the density's horizon.
    - `steps`: intervals of the path, at least two; they shorten towards the end.
    - `paths`: how many.
    - `sde`: the equation, for densities that do not know theirs. Its coefficients must not
        depend on time, unless the density depends on the time of the start.
    - `local`: the transition $p_h$ over one step. By default the Euler--Maruyama step (moment
        closure where noise does not enter every component), which makes
        the weights independent of the density but for the last step, at an error of first order in
        the step. With `local=density` no error of discretisation is left, but the density is
        trusted over all short times. Keep the default where the noise depends on the state:
        Gaussian proposals have the covariance of Euler steps, and their weights for the true ones
        do not improve as steps become shorter.
    - `params`: parameters of the SDE, if the density has any.
    - `start_time`: when the path is at `x0`, if the density depends on it. Each step then starts at
        its own time.

    **Returns:**

    `.times`, `.paths`, `.log_weights`, with `.mean(f)`, `.resample(key, count)` and
    `.effective_share`; a share far below one says that the density guided badly. `.outside` is the
    share of points from which it was not made to start.

    >>> import jax
    >>> import diracflow as df
    >>> model = df.models.benes()
    >>> found = df.bridge(
    ...     jax.random.key(0), model.exact, [0.0, 0.0], [1.0, 1.0], 1.0, 20, 8, sde=model.sde
    ... )
    >>> found.paths.shape
    (8, 21, 2)
    """
    key = checked_key(key)
    given = scalars(density, params)
    equation = member_of(equation_of(density, sde), given)
    start, end = _ends(density, x0, x1)
    steps, paths = checked_count("steps", steps, least=2), checked_count("paths", paths)
    _require_local(density, local)
    _require_inside(equation, x0=start, x1=end)
    began = began_at(density, start_time, "start_time")
    _require_reachable(density, start, end, t, {"params": given, "start_time": start_time})
    if density.start_time is not None:
        require_homogeneous(equation, began, float(t), jnp.stack([start, end, (start + end) / 2]))
    remaining = t * (1 - jnp.arange(steps + 1, dtype=start.dtype) / steps) ** 2
    check_start_times(density, began + (t - remaining[:-1]), "bridge")
    chart = chart_of(density, equation)
    degenerate = is_degenerate_at(equation, began, jnp.stack([start, end]))
    make = _linearised_chain if degenerate else _euler_chain
    tie = _Tie(given, jnp.asarray(began + t, start.dtype), chart.start(end))
    chain: AbstractChain = make(density, local, chart, tie)
    inner, log_weights = _walk(chain, key, chart.start(start), remaining, paths)
    inner = _states(chart, inner)
    # The chain ends in the density of the end's coordinates.
    log_weights = log_weights + chart.log_slope(end)
    _require_weight(log_weights)
    keywords = chain.keywords(density, remaining[1:-1, None])
    outside = float(jnp.mean(density.outside(inner, **keywords)))
    return Bridge(t - remaining, _tied(start, inner, end), log_weights, outside)


class _Chain(AbstractChain):
    """Steps of a Brownian bridge, guided."""

    sde: SDE

    def step(
        self, key: PRNGKeyArray, y: Float[Array, "n d"], r: Float[Array, ""], h: Float[Array, ""]
    ) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
        scores = self.density.start_score(self.end, r, y, **self.keywords(self.density, r))
        noise = jr.normal(key, y.shape, y.dtype)
        frames = jax.vmap(lambda y, score: self._frame(y, score, r, h))(y, scores)
        new = jax.vmap(Frame.restore)(frames, noise)
        log_q = jax.vmap(lambda f, z: standard_log_prob(z) - f.log_det())(frames, noise)
        return new, self.local.log_prob(new, h, y, **self.keywords(self.local, r)) - log_q

    def _frame(self, y: Array, score: Array, r: Array, h: Array) -> Frame:
        covariance = self.sde.covariance(self.arrival - r, y)
        guided = self.sde.drift(self.arrival - r, y) + covariance @ score
        factor = jnp.sqrt(h * (r - h) / r) * jnp.linalg.cholesky(covariance)
        return Frame(y + h * guided, factor)


class _Tie(NamedTuple):
    """What ties a path: parameters, the time of arrival, and the end in coordinates of a chart."""

    params: dict[str, Array]
    arrival: Float[Array, ""]
    end: Float[Array, " d"]


def _euler_chain(
    density: AbstractTransitionDensity,
    local: AbstractTransitionDensity | None,
    chart: Chart,
    tie: _Tie,
) -> _Chain:
    equation = chart.equation()
    step = SourceDensity(EulerSource(equation, density.start_time))
    local = step if local is None else _mapped(local, chart)
    return _Chain(_mapped(density, chart), local, tie.params, tie.arrival, tie.end, equation)


def _linearised_chain(
    density: AbstractTransitionDensity,
    local: AbstractTransitionDensity | None,
    chart: Chart,
    tie: _Tie,
) -> LinearisedChain:
    equation, known = chart.equation(), density.start_time
    start = tie.end if known is not None else jnp.append(tie.end, tie.arrival)
    source = MomentSource(equation, known, graded_basis(equation, known, np.asarray(start)))
    local = SourceDensity(source) if local is None else _mapped(local, chart)
    return LinearisedChain(_mapped(density, chart), local, tie.params, tie.arrival, tie.end, source)


def _mapped(density: AbstractTransitionDensity, chart: Chart) -> AbstractTransitionDensity:
    """A density in the coordinates of a chart."""
    return density if chart.plain else MappedDensity(density, chart)


@eqx.filter_jit
def _states(chart: Chart, y: Float[Array, "steps paths d"]) -> Float[Array, "steps paths d"]:
    return y if chart.plain else jax.vmap(jax.vmap(chart.from_real))(y)


@eqx.filter_jit
def _walk(
    chain: AbstractChain, key: PRNGKeyArray, x0: Array, remaining: Array, paths: int
) -> tuple[Float[Array, "steps-1 paths d"], Float[Array, " paths"]]:
    r = remaining[:-2]
    h = r - remaining[1:-1]

    def step(state: tuple, inputs: tuple) -> tuple[tuple, Array]:
        y, log_weights = state
        new, gained = chain.step(inputs[0], y, *inputs[1:])
        return (new, log_weights + gained), new

    first = jnp.broadcast_to(x0, (paths, len(x0))), jnp.zeros(paths, x0.dtype)
    (y, log_weights), inner = jax.lax.scan(step, first, (jr.split(key, len(r)), r, h))
    last = chain.keywords(chain.density, remaining[-2])
    return inner, log_weights + chain.density.log_prob(chain.end, remaining[-2], y, **last)


def _tied(start: Array, inner: Float[Array, "steps-1 paths d"], end: Array) -> Array:
    first, last = (jnp.broadcast_to(x, (1, *inner.shape[1:])) for x in (start, end))
    return jnp.swapaxes(jnp.concatenate([first, inner, last]), 0, 1)


def _ends(density: AbstractTransitionDensity, x0: ArrayLike, x1: ArrayLike) -> tuple[Array, Array]:
    ends = []
    for name, value in (("x0", x0), ("x1", x1)):
        point = jnp.asarray(real_numbers(name, value))
        if point.shape != (density.dim,):
            raise ValueError(
                f"`{name}` must be one point of shape ({density.dim},); got {point.shape}. For "
                "several ends call `bridge` for each; it is compiled once."
            )
        if bool(jnp.any(jnp.isnan(point))):
            raise ValueError(
                f"`{name}` contains NaN. All components of both ends must be known: the density "
                "of some of them alone is an integral over the others, which a transition density "
                "does not offer. `diracflow.filter` takes partial observations."
            )
        if not bool(jnp.all(jnp.isfinite(point))):
            raise ValueError(f"`{name}` must be finite; got {point}.")
        ends.append(point)
    return ends[0], ends[1]


def _require_inside(sde: SDE, **ends: Array) -> None:
    for name, point in ends.items():
        inside = [bool(part.contains(x)) for part, x in zip(sde.domain, point, strict=True)]
        if not all(inside):
            raise ValueError(
                f"`{name}` must lie inside the domain {' x '.join(map(str, sde.domain))}; got "
                f"{point.tolist()}."
            )


def _require_local(
    density: AbstractTransitionDensity, local: AbstractTransitionDensity | None
) -> None:
    if local is not None:
        require_density(local, "local")
        if local.dim != density.dim:
            raise ValueError(f"`local` must have {density.dim} components; it has {local.dim}.")


def _require_reachable(
    density: AbstractTransitionDensity, x0: Array, x1: Array, t: float, keywords: dict[str, Any]
) -> None:
    if np.ndim(t) != 0:
        raise ValueError(f"`t` must be one time; got shape {np.shape(t)}.")
    log_prob = float(density.log_prob(x1, t, x0, **keywords))
    if not np.isfinite(log_prob):
        raise ValueError(
            f"`x1` cannot be reached: its log-density at t={t:g} from `x0` is {log_prob}. Choose "
            "an end point where the density is positive."
        )


def _require_weight(log_weights: Float[Array, " n"]) -> None:
    undefined = int(jnp.sum(jnp.isnan(log_weights)))
    if undefined:
        raise WeightsVanished(
            f"{undefined} of {len(log_weights)} paths went where the coefficients or the density "
            "are not defined. Take more `steps`, or ends further inside the domain."
        )
    if not bool(jnp.any(jnp.isfinite(log_weights))):
        raise WeightsVanished(
            "No path carries any weight: the density guides none to where the SDE's own paths "
            "go. Take more `steps`, or ends nearer to the bulk of the starts learned."
        )
