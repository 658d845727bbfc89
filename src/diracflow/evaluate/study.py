"""Errors of a learned density and of its source over a range of times and starts."""

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
        """Return one row for each time: means over the starts."""
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
    """Return the standard error of a mean of independent estimates."""
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
    """Compare a learned density with the exact one over its horizon and its start law.

    **Arguments:**

    - `density`, `exact`: the learned and the exact density.
    - `key`: a random key for starts and samples. Starts, with parameters and start times if the
        density depends on them, are drawn from the laws that the density was trained on.
    - `starts`: number of starts.
    - `times`: times; by default sixteen, logarithmically spaced over three decades.
    - `samples`: number of draws for each time and start, above two dimensions.
    """
    checked_count("starts", starts)
    key = checked_key(key)
    if times is None:
        times = density.horizon * np.geomspace(1e-3, 1.0, 16)
    start_key, sample_key = jr.split(key)
    # float32 cannot resolve errors below 1e-6.
    with jax.enable_x64(True):
        g = density.scope.law.sample(start_key, (starts,))
        x0, conditioning = np.asarray(g[:, : density.dim]), density._keywords(g[:, density.dim :])
        learned, source = (
            errors(candidate, exact, times, x0, key=sample_key, samples=samples, **conditioning)
            for candidate in (density, density.source_only())
        )
    return Study(np.asarray(times), x0, learned, source)
