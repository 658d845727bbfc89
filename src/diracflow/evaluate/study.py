"""Errors over a range of times and starts, beside those of the source alone."""

from typing import Any, NamedTuple

import jax
import jax.random as jr
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ..density.learned import LearnedDensity
from ..sde.argument_checks import checked_count, checked_key
from ..transition.transition_density import AbstractTransitionDensity
from .errors import Errors, bootstrap_mean, errors


class Study(NamedTuple):
    """Errors of a learned density and of its source, of shape `(times, starts)`."""

    times: Float[np.ndarray, " times"]
    starts: Float[np.ndarray, "starts d"]
    learned: Errors
    source: Errors

    def summary(self) -> list[dict[str, Any]]:
        """One row for each time: means over the starts."""
        return [self._row(i) for i in range(len(self.times))]

    def _row(self, i: int) -> dict[str, Any]:
        mean, low, high = bootstrap_mean(self.learned.squared_l2[i])
        return {
            "t": float(self.times[i]),
            "squared_l2": float(mean),
            "squared_l2_low": float(low),
            "squared_l2_high": float(high),
            "squared_l2_max": float(self.learned.squared_l2[i].max()),
            "source_squared_l2": float(self.source.squared_l2[i].mean()),
            "squared_l2_stderr": _of_mean(self.learned.squared_l2_stderr[i]),
            "kl": float(self.learned.kl[i].mean()),
            "kl_stderr": _of_mean(self.learned.kl_stderr[i]),
            "source_kl": float(self.source.kl[i].mean()),
            "total_variation": float(self.learned.total_variation[i].mean()),
            "total_variation_stderr": _of_mean(self.learned.total_variation_stderr[i]),
            "source_total_variation": float(self.source.total_variation[i].mean()),
        }


def _of_mean(stderrs: np.ndarray) -> float:
    """Standard error of a mean of independent estimates."""
    return float(np.sqrt(np.sum(stderrs**2)) / len(stderrs))


def study(
    density: LearnedDensity,
    exact: AbstractTransitionDensity,
    *,
    key: PRNGKeyArray,
    starts: int = 64,
    times: Float[np.ndarray, " times"] | None = None,
    samples: int = 512,
) -> Study:
    """Judge a learned density over its whole horizon, and over all that it was learned for.

    **Arguments:**

    - `density`, `exact`: the density and the truth.
    - `key`: for the starts, drawn from the law the density was trained on, and for the samples.
        Each start has its own parameters and start time, where the density was learned over these.
    - `starts`: how many.
    - `times`: by default sixteen, spread evenly in the logarithm over three decades.
    - `samples`: draws for each pair above two dimensions.
    """
    checked_count("starts", starts)
    key = checked_key(key)
    if times is None:
        times = density.horizon * np.geomspace(1e-3, 1.0, 16)
    start_key, sample_key = jr.split(key)
    # Errors below 1e-6 are beyond float32.
    with jax.enable_x64(True):
        g = density.scope.law.sample(start_key, (starts,))
        x0, given = np.asarray(g[:, : density.dim]), density._keywords(g[:, density.dim :])
        learned, source = (
            errors(candidate, exact, times, x0, key=sample_key, samples=samples, **given)
            for candidate in (density, density.source_only())
        )
    return Study(np.asarray(times), x0, learned, source)
