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

A proposal has the guided mean $y + h(b + \Sigma\nabla\log\rho)$ and, with $r = t - s_k$, the
covariance $\Sigma h(r - h)/r$ of a Brownian bridge, so that a Brownian motion is bridged exactly
by steps of any length. Where noise does not enter every component these have no density, and steps
of the linearised equation take their place: see `linearised_steps`.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from ..problem.checks import is_degenerate_at
from ..problem.moving_frame import Frame
from ..problem.sde import SDE
from ..problem.transition import AbstractTransitionDensity
from ..source.euler import EulerSource
from ..source.gaussian import standard_log_prob
from ..source.moments import MomentSource, graded_basis
from ..source.transition import SourceDensity
from .equation import equation_of, require_homogeneous, start_of
from .linearised_steps import LinearisedChain
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
        if count < 1:
            raise ValueError(f"`count` must be at least 1; got {count}.")
        return self.paths[systematic(key, self.weights, count)]


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
        depend on time.
    - `local`: the transition $p_h$ over one step. By default the Euler--Maruyama step (moment
        closure where noise does not enter every component), which makes
        the weights independent of the density but for the last step, at an error of first order in
        the step. With `local=density` no error of discretisation is left, but the density is
        trusted over all short times. Keep the default where the noise depends on the state:
        Gaussian proposals have the covariance of Euler steps, and their weights for the true ones
        do not improve as steps become shorter.

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
    equation = equation_of(density, sde)
    start, end = _ends(density, x0, x1)
    _require_counts(steps, paths)
    _require_reachable(density, start, end, t)
    began = start_of(density)
    require_homogeneous(equation, began, float(t), jnp.stack([start, end, (start + end) / 2]))
    remaining = t * (1 - jnp.arange(steps + 1, dtype=start.dtype) / steps) ** 2
    degenerate = is_degenerate_at(equation, began, jnp.stack([start, end]))
    chain = (_linearised_chain if degenerate else _euler_chain)(density, local, equation, end)
    inner, log_weights = _walk(chain, key, start, remaining, paths)
    _require_weight(log_weights)
    outside = float(jnp.mean(density.outside(inner)))
    return Bridge(t - remaining, _tied(start, inner, end), log_weights, outside)


class _Chain(eqx.Module):
    """One step of the proposal, with the logarithm of the target over the proposal."""

    density: AbstractTransitionDensity
    local: AbstractTransitionDensity
    sde: SDE
    began: float = eqx.field(static=True)
    end: Float[Array, " d"]

    def step(
        self, key: PRNGKeyArray, y: Float[Array, "n d"], r: Float[Array, ""], h: Float[Array, ""]
    ) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
        scores = self.density.start_score(self.end, r, y)
        noise = jr.normal(key, y.shape, y.dtype)
        frames = jax.vmap(lambda y, score: self._frame(y, score, r, h))(y, scores)
        new = jax.vmap(Frame.restore)(frames, noise)
        log_q = jax.vmap(lambda f, z: standard_log_prob(z) - f.log_det())(frames, noise)
        return new, self.local.log_prob(new, h, y) - log_q

    def _frame(self, y: Array, score: Array, r: Array, h: Array) -> Frame:
        began = jnp.asarray(self.began, y.dtype)
        covariance = self.sde.covariance(began, y)
        guided = self.sde.drift(began, y) + covariance @ score
        factor = jnp.sqrt(h * (r - h) / r) * jnp.linalg.cholesky(covariance)
        return Frame(y + h * guided, factor)


def _euler_chain(
    density: AbstractTransitionDensity,
    local: AbstractTransitionDensity | None,
    sde: SDE,
    end: Float[Array, " d"],
) -> _Chain:
    began = start_of(density)
    return _Chain(density, local or SourceDensity(EulerSource(sde, began)), sde, began, end)


def _linearised_chain(
    density: AbstractTransitionDensity,
    local: AbstractTransitionDensity | None,
    sde: SDE,
    end: Float[Array, " d"],
) -> LinearisedChain:
    began = start_of(density)
    source = MomentSource(sde, began, graded_basis(sde, began, np.asarray(end)))
    return LinearisedChain(density, local or SourceDensity(source), source, end)


@eqx.filter_jit
def _walk(
    chain: "_Chain | LinearisedChain", key: PRNGKeyArray, x0: Array, remaining: Array, paths: int
) -> tuple[Float[Array, "steps-1 paths d"], Float[Array, " paths"]]:
    r = remaining[:-2]
    h = r - remaining[1:-1]

    def step(state: tuple, inputs: tuple) -> tuple[tuple, Array]:
        y, log_weights = state
        new, gained = chain.step(inputs[0], y, *inputs[1:])
        return (new, log_weights + gained), new

    first = jnp.broadcast_to(x0, (paths, len(x0))), jnp.zeros(paths, x0.dtype)
    (y, log_weights), inner = jax.lax.scan(step, first, (jr.split(key, len(r)), r, h))
    return inner, log_weights + chain.density.log_prob(chain.end, remaining[-2], y)


def _tied(start: Array, inner: Float[Array, "steps-1 paths d"], end: Array) -> Array:
    first, last = (jnp.broadcast_to(x, (1, *inner.shape[1:])) for x in (start, end))
    return jnp.swapaxes(jnp.concatenate([first, inner, last]), 0, 1)


def _ends(density: AbstractTransitionDensity, x0: ArrayLike, x1: ArrayLike) -> tuple[Array, Array]:
    number, ends = jnp.result_type(float), []
    for name, value in (("x0", x0), ("x1", x1)):
        point = jnp.asarray(value, number)
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


def _require_counts(steps: int, paths: int) -> None:
    if steps < 2:
        raise ValueError(f"`steps` must be at least 2, or nothing lies between; got {steps}.")
    if paths < 1:
        raise ValueError(f"`paths` must be at least 1; got {paths}.")


def _require_reachable(density: AbstractTransitionDensity, x0: Array, x1: Array, t: float) -> None:
    if np.ndim(t) != 0:
        raise ValueError(f"`t` must be one time; got shape {np.shape(t)}.")
    log_prob = float(density.log_prob(x1, t, x0))
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
