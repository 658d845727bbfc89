r"""Checks of one-step predictions: probability integral transforms, log scores, comparison.

If a model is right, the distribution function of each prediction at the value that came is uniform,
and independent of the earlier ones. Components of a state are transformed one after the other, each
given those before it (Rosenblatt 1952), so that all transforms are uniform and independent.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray
from scipy.stats import chi2, kstest, norm

from ..distribution.lazy_plot import Drawn
from ..hidden.filtering import Filtered
from ..inference.likelihood import transitions
from ..sde.argument_checks import checked_count, checked_key, real_numbers
from ..sde.parameters import Params
from ..transition.transition_density import AbstractTransitionDensity
from ..uses.observed import in_unit
from ..uses.simulation import jumps_to
from ..uses.underlying_sde import conditioning_at, scalars

# Predictions transformed at once, and the largest distance of a transform from 0 and 1 that counts.
_TOGETHER, _TINY = 256, 1e-12


class Outcome(NamedTuple):
    """A test statistic and its p-value, one for each component."""

    statistic: Float[np.ndarray, " k"]
    p: Float[np.ndarray, " k"]


@dataclasses.dataclass(frozen=True)
class PredictiveCheck(Drawn):
    """One-step predictions compared with what came.

    **Attributes:** `times`; `transforms`, uniform and independent if the model is right; and
    `log_scores`, the logarithm of the predictive density at each time. `plot` draws the histogram
    of the transforms, with the 95 % band of uniform ones.
    """

    times: Float[np.ndarray, " n"]
    transforms: Float[np.ndarray, "n k"]
    log_scores: Float[np.ndarray, " n"]

    @property
    def normal_scores(self) -> Float[np.ndarray, "n k"]:
        """The normal quantiles of the transforms, standard normal if the model is right."""
        return norm.ppf(np.clip(self.transforms, _TINY, 1 - _TINY))

    def after(self, time: float) -> "PredictiveCheck":
        """Return the part after a time, such as the end of the data that a model was fitted to."""
        late = self.times > time
        return PredictiveCheck(self.times[late], self.transforms[late], self.log_scores[late])

    def tests(self, lags: int = 10) -> dict[str, Outcome]:
        """Return tests of each component; small p-values reject the model.

        `"uniform"` is Kolmogorov and Smirnov's test of the transforms. `"independent"` and
        `"variance"` are Ljung and Box's test of the normal scores and of their squares. P-values
        are too large if parameters were fitted to the same data.

        **Arguments:**

        - `lags`: number of autocorrelations that Ljung and Box's test combines.
        """
        checked_count("lags", lags)
        scores = self.normal_scores
        uniform = [kstest(column, "uniform") for column in self.transforms.T]
        found = {"uniform": Outcome(*np.array([(r.statistic, r.pvalue) for r in uniform]).T)}
        for name, values in {"independent": scores, "variance": scores**2}.items():
            found[name] = Outcome(*np.array([ljung_box(column, lags) for column in values.T]).T)
        return found


def ljung_box(values: Float[ArrayLike, " n"], lags: int) -> tuple[float, float]:
    """Return Ljung and Box's statistic of autocorrelations up to a lag, and its p-value."""
    centred = np.asarray(values) - np.mean(values)
    n = len(centred)
    if n <= lags + 1:
        raise ValueError(f"{lags} lags need more than {lags + 1} values; got {n}.")
    correlations = np.array([centred[k:] @ centred[:-k] for k in range(1, lags + 1)])
    correlations /= centred @ centred
    statistic = float(n * (n + 2) * np.sum(correlations**2 / (n - np.arange(1, lags + 1))))
    return statistic, float(chi2.sf(statistic, lags))


def path_check(
    density: AbstractTransitionDensity,
    times: Float[ArrayLike, " n+1"],
    states: Float[ArrayLike, "n+1 d"],
    params: Params | None = None,
    *,
    unit: str | None = None,
) -> PredictiveCheck:
    """Check the predictions of each state of an observed path from the state before.

    **Arguments:**

    - `density`: a transition density, learned or exact.
    - `times`, `states`, `unit`: one path, as for `diracflow.log_likelihood`.
    - `params`: parameters of the SDE, if the density has any.

    >>> import diracflow as df
    >>> exact = df.models.ornstein_uhlenbeck(1).exact
    >>> check = df.evaluate.path_check(exact, [0.0, 1.0, 1.5], [[0.1], [0.6], [-0.2]])
    >>> check.transforms.shape, check.log_scores.shape
    ((2, 1), (2,))
    """
    params = scalars(density, params) or None
    seen = transitions(density, *in_unit(times, states, unit))
    if seen.batch:
        raise ValueError(f"`states` must be one path; got paths of shape {seen.batch}.")
    count = len(seen.before)
    gaps = np.broadcast_to(np.asarray(seen.gaps), (count,))
    began = np.asarray(seen.begins)
    scores, transforms = [], []
    for first in range(0, count, _TOGETHER):
        rows = slice(first, first + _TOGETHER)
        start = began[rows] if density.start_time is None else None
        # One gap if all are equal: what depends on time alone is then computed once.
        t = gaps[0] if len(seen.gaps) == 1 else gaps[rows]
        law = density.at(t, seen.before[rows], params, start_time=start)
        x = np.asarray(seen.after[rows])
        scores.append(np.asarray(law.log_prob(x)))
        transforms.append(_rosenblatt(law, x))
    return PredictiveCheck(began + gaps, np.concatenate(transforms), np.concatenate(scores))


def _rosenblatt(law: Any, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    """Return the distribution function of each component given those before it."""
    if law.dim == 1:
        return np.asarray(law.cdf(x))[:, None]
    columns = [law.marginal(0).cdf(x[:, :1])]
    for i in range(1, law.dim):
        part = law if i == law.dim - 1 else law.marginal(range(i + 1))
        columns.append(part.conditional({j: x[:, j] for j in range(i)}).cdf(x[:, i : i + 1]))
    return np.stack([np.asarray(column) for column in columns], axis=-1)


def filter_check(
    key: PRNGKeyArray | int,
    density: AbstractTransitionDensity,
    filtered: Filtered,
    observations: Float[ArrayLike, "n *k"],
    cdf: Callable[[Float[Array, " d"], Array], Array],
    params: Params | None = None,
) -> PredictiveCheck:
    """Check the predictions of each observation from the earlier ones.

    The prediction is the mixture over the particles of the filter at the time before, moved by the
    transition density. The first observation has none, and missing ones are left out. Log scores
    are those of the filter. The transforms of several components are those of each by itself.

    **Arguments:**

    - `key`: a random key, or a seed.
    - `density`, `params`: those that the filter was called with.
    - `filtered`: the result of `diracflow.filter` with `history=True`.
    - `observations`: those that the filter was called with.
    - `cdf`: the distribution function of an observation given the state, $(x, y)$ to a number, or
        to one for each component of $y$: `lambda x, y: norm.cdf(y[0], x[0], 0.5)`.
    """
    key, params = checked_key(key), scalars(density, params)
    if not isinstance(filtered, Filtered):
        raise ValueError(f"`filtered` must come from `filter`; got {type(filtered).__name__}.")
    filtered.at(0)  # raises unless particles were stored
    times = np.asarray(filtered.times)
    y = np.asarray(real_numbers("observations", getattr(observations, "values", observations)))
    if y.ndim == 0 or len(y) != len(times):
        raise ValueError(
            f"`observations` must have one row for each of the {len(times)} times of the filter; "
            f"got shape {y.shape}."
        )
    if len(times) < 2:
        raise ValueError("The first observation has no prediction; a check needs two or more.")
    found = jumps_to(density, times[1:], times[0], "filter_check")
    counts = np.diff(found.last, prepend=-1)
    jumps = (*map(jnp.asarray, (found.gaps[found.last], counts, times[:-1])),)
    laws = filtered.particles[:-1], filtered.weights[:-1]  # type: ignore[index]
    rows = jax.random.split(key, len(counts)), laws, jumps, jnp.asarray(y[1:])
    values = np.asarray(_predicted(density, rows, int(counts.max()), cdf, params))
    values = values.reshape(len(counts), -1)
    seen = ~np.isnan(y[1:].reshape(len(counts), -1)).any(axis=1)
    if not np.all((values[seen] >= 0) & (values[seen] <= 1 + 1e-6)):
        raise ValueError("`cdf(x, y)` must return probabilities, between 0 and 1.")
    return PredictiveCheck(
        times[1:][seen], values[seen], np.asarray(filtered.log_evidences)[1:][seen]
    )


@eqx.filter_jit
def _predicted(
    density: AbstractTransitionDensity,
    rows: tuple,
    most: int,
    cdf: Callable,
    params: dict[str, Any],
) -> Float[Array, "n *k"]:
    """Return the mean of `cdf` over the particles moved to the time of each observation."""

    def one(row: tuple) -> Array:
        key, (x, weights), (gap, count, begin), value = row
        for index in range(most):
            conditioning = conditioning_at(density, params, begin + index * gap)
            moved = density.sample(jax.random.fold_in(key, index), gap, x, **conditioning)
            x = jnp.where(index < count, moved, x)
        return jnp.tensordot(weights, jax.vmap(lambda x: jnp.asarray(cdf(x, value)))(x), 1)

    return jax.lax.map(one, rows)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Sum of the differences of two models' log scores, and its standard error."""

    difference: float  # positive if the first model predicts better
    stderr: float
    count: int  # of predictions


def compare(
    first: PredictiveCheck | Float[ArrayLike, " n"],
    second: PredictiveCheck | Float[ArrayLike, " n"],
    lags: int = 0,
) -> Comparison:
    """Compare two models by their log scores of the same predictions, on held-out data.

    The difference estimates that of the expected log predictive densities, in nats, times `count`.
    Its standard error is that of Diebold and Mariano (1995).

    **Arguments:**

    - `first`, `second`: the checks of both models, or their log scores.
    - `lags`: number of autocorrelations of the differences that the standard error counts; more
        than zero if predictions overlap.
    """
    scores = [
        real_numbers("log scores", getattr(check, "log_scores", check)) for check in (first, second)
    ]
    times = [check.times for check in (first, second) if isinstance(check, PredictiveCheck)]
    if len(times) == 2 and not np.array_equal(times[0], times[1]):
        raise ValueError("Both models must predict at the same times.")
    if scores[0].shape != scores[1].shape or scores[0].ndim != 1 or len(scores[0]) < 2:
        raise ValueError(
            "Log scores must be two or more of the same predictions; got shapes "
            f"{scores[0].shape} and {scores[1].shape}."
        )
    gaps = np.asarray(scores[0]) - np.asarray(scores[1])
    count, centred = len(gaps), gaps - np.mean(gaps)
    lags = min(checked_count("lags", lags, least=0), count - 1)
    variance = centred @ centred
    for lag in range(1, lags + 1):  # weights of Bartlett keep it positive
        variance += 2 * (1 - lag / (lags + 1)) * (centred[lag:] @ centred[:-lag])
    stderr = float(np.sqrt(variance * count / (count - 1)))
    return Comparison(float(np.sum(gaps)), stderr, count)
