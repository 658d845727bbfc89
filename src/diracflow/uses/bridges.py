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
none leaves the domain. The proposals are in `bridge_proposals`.
"""

from collections.abc import Callable
from typing import NamedTuple, Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from ..sde.argument_checks import checked_count, checked_key, real_numbers
from ..sde.chart import Chart
from ..sde.coefficient_checks import is_degenerate_at
from ..sde.parameters import Params
from ..sde.sde import SDE
from ..source.gaussian_source import EulerSource, SourceDensity
from ..source.moments import MomentSource, graded_basis
from ..transition.charted_density import MappedDensity
from ..transition.transition_density import AbstractTransitionDensity, require_density
from .bridge_proposals import AbstractProposal, GuidedEuler, GuidedLinearised, simulate_paths
from .underlying_sde import (
    Conditioning,
    began_at,
    chart_of,
    check_start_times,
    equation_of,
    member_of,
    require_homogeneous,
    scalars,
)
from .weights import WeightsVanished, effective_fraction, normalised, systematic


class Bridge(eqx.Module):
    """Weighted paths from `x0` to `x1`."""

    times: Float[Array, " steps+1"]
    paths: Float[Array, "paths steps+1 d"]
    log_weights: Float[Array, " paths"]
    outside: float  # fraction of the points that lie outside the start law of the density

    @property
    def weights(self) -> Float[Array, " paths"]:
        """Normalised weights, which sum to one."""
        return normalised(self.log_weights)

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
    process = _conditioned_process(density, (x0, x1), t, sde, local, **conditioning)
    remaining = t * (1 - jnp.arange(steps + 1, dtype=process.start.dtype) / steps) ** 2
    check_start_times(density, process.began + (t - remaining[:-1]), "bridge")
    return _weighted_paths(process, key, remaining, paths)


class _ConditionedProcess(NamedTuple):
    """Checked arguments of `bridge`: the process moves from `start` to `end` in a time `t`."""

    density: AbstractTransitionDensity
    local: AbstractTransitionDensity | None
    sde: SDE
    params: dict[str, Array]
    start: Float[Array, " d"]
    end: Float[Array, " d"]
    began: float  # time at which the process is at `start`
    t: float


def _conditioned_process(
    density: AbstractTransitionDensity,
    ends: tuple[ArrayLike, ArrayLike],
    t: float,
    sde: SDE | None,
    local: AbstractTransitionDensity | None,
    params: Params | None = None,
    start_time: float | None = None,
) -> _ConditionedProcess:
    values = scalars(density, params)
    equation = member_of(equation_of(density, sde), values)
    start, end = (_checked_end(density, f"x{i}", point) for i, point in enumerate(ends))
    if local is not None:
        require_density(local, "local")
        if local.dim != density.dim:
            raise ValueError(f"`local` must have {density.dim} components; it has {local.dim}.")
    _require_inside(equation, x0=start, x1=end)
    began = began_at(density, start_time, "start_time")
    if np.ndim(t) != 0:
        raise ValueError(f"`t` must be one time; got shape {np.shape(t)}.")
    log_prob = float(density.log_prob(end, t, start, params=values, start_time=start_time))
    if not np.isfinite(log_prob):
        raise ValueError(
            f"`x1` cannot be reached: its log-density at t={t:g} from `x0` is {log_prob}. Choose "
            "an end point where the density is positive."
        )
    if density.start_time is not None:
        require_homogeneous(equation, began, float(t), jnp.stack([start, end, (start + end) / 2]))
    return _ConditionedProcess(density, local, equation, values, start, end, began, t)


def _weighted_paths(
    process: _ConditionedProcess, key: PRNGKeyArray, remaining: Array, paths: int
) -> Bridge:
    density, start, end = process.density, process.start, process.end
    chart = chart_of(density, process.sde)
    proposal = _proposal(process, chart)
    inner, log_weights = simulate_paths(proposal, key, chart.start(start), remaining, paths)
    inner = _states(chart, inner)
    # The chain ends with a density in the coordinates of the chart.
    log_weights = log_weights + chart.log_slope(end)
    _require_weight(log_weights)
    outside = density.outside(inner, **proposal.keywords(density, remaining[1:-1, None]))
    first, last = (jnp.broadcast_to(x, (1, *inner.shape[1:])) for x in (start, end))
    points = jnp.swapaxes(jnp.concatenate([first, inner, last]), 0, 1)
    return Bridge(process.t - remaining, points, log_weights, float(jnp.mean(outside)))


def _proposal(process: _ConditionedProcess, chart: Chart) -> AbstractProposal:
    mapped = lambda law: law if chart.plain else MappedDensity(law, chart)
    equation, known = chart.equation(), process.density.start_time
    arrival = jnp.asarray(process.began + process.t, process.start.dtype)
    end = chart.start(process.end)
    kind: type[AbstractProposal] = GuidedEuler
    source: EulerSource | MomentSource = EulerSource(equation, known)
    if is_degenerate_at(process.sde, process.began, jnp.stack([process.start, process.end])):
        at_end = end if known is not None else jnp.append(end, arrival)
        kind = GuidedLinearised
        source = MomentSource(equation, known, graded_basis(equation, known, np.asarray(at_end)))
    local = SourceDensity(source) if process.local is None else mapped(process.local)
    return kind(mapped(process.density), local, process.params, arrival, end, source)


@eqx.filter_jit
def _states(chart: Chart, y: Float[Array, "steps paths d"]) -> Float[Array, "steps paths d"]:
    return y if chart.plain else jax.vmap(jax.vmap(chart.from_real))(y)


def _checked_end(
    density: AbstractTransitionDensity, name: str, value: ArrayLike
) -> Float[Array, " d"]:
    point = jnp.asarray(real_numbers(name, value))
    if point.shape != (density.dim,):
        raise ValueError(
            f"`{name}` must be one point of shape ({density.dim},); got {point.shape}. For "
            "several ends call `bridge` for each; it is compiled once."
        )
    if bool(jnp.any(jnp.isnan(point))):
        raise ValueError(
            f"`{name}` contains NaN. All components of both ends must be known: conditioning on "
            "some of them needs an integral over the others. For partial observations use "
            "`diracflow.filter`."
        )
    if not bool(jnp.all(jnp.isfinite(point))):
        raise ValueError(f"`{name}` must be finite; got {point}.")
    return point


def _require_inside(sde: SDE, **ends: Array) -> None:
    for name, point in ends.items():
        inside = [bool(part.contains(x)) for part, x in zip(sde.domain, point, strict=True)]
        if not all(inside):
            raise ValueError(
                f"`{name}` must lie inside the domain {' x '.join(map(str, sde.domain))}; got "
                f"{point.tolist()}."
            )


def _require_weight(log_weights: Float[Array, " n"]) -> None:
    undefined = int(jnp.sum(jnp.isnan(log_weights)))
    if undefined:
        raise WeightsVanished(
            f"{undefined} of {len(log_weights)} paths reached points where the coefficients or "
            "the density are not defined. Increase `steps`, or choose ends further inside the "
            "domain."
        )
    if not bool(jnp.any(jnp.isfinite(log_weights))):
        raise WeightsVanished(
            "All paths have weight zero: the density guides them to where the SDE has no mass. "
            "Increase `steps`, or choose ends closer to the bulk of the start law."
        )
