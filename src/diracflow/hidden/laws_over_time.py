"""Laws of a state at several times: their moments and quantiles, and methods of all results."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..distribution.lazy_plot import Drawn
from ..sde.argument_checks import real_numbers
from ..uses.extras import extra
from ..uses.weights import weighted_quantiles


class AbstractLawsOverTime(Drawn, eqx.Module):
    """Moments and quantiles of the state at each time.

    `plot` draws the outermost quantiles and the middle one over time.
    """

    times: Float[Array, " n"]
    means: Float[Array, "n d"]
    variances: Float[Array, "n d"]
    levels: Float[Array, " q"]
    quantiles: Float[Array, "n q d"]
    outside: Float[Array, " n"]  # fraction of particles outside the start law of the density

    def to_xarray(self) -> Any:
        """Return an `xarray.Dataset` with the dimensions `time`, `level` and `component`."""
        columns = ("time", "component")
        variables = {
            "mean": (columns, np.asarray(self.means)),
            "variance": (columns, np.asarray(self.variances)),
            "quantile": (("time", "level", "component"), np.asarray(self.quantiles)),
        }
        coordinates = {"time": np.asarray(self.times), "level": np.asarray(self.levels)}
        coordinates["component"] = np.arange(self.means.shape[1])
        return extra("xarray").Dataset(variables, coordinates)

    def _check_index(self, index: int) -> None:
        if not -len(self.times) <= index < len(self.times):
            raise ValueError(f"`index` must be one of {len(self.times)} times; got {index}.")


class AbstractHiddenLaws(AbstractLawsOverTime):
    """Laws of a hidden state, given observations."""

    log_evidences: Float[Array, " n"]  # of each observation given the earlier; zero if missing
    effective_shares: Float[Array, " n"]  # effective sample size / particles, before resampling

    @property
    def log_evidence(self) -> Float[Array, ""]:
        """Logarithm of the estimated density of all observations."""
        return jnp.sum(self.log_evidences)


def laws(
    x: Float[Array, "particles d"], weights: Float[Array, " particles"], levels: Float[Array, " q"]
) -> dict[str, Any]:
    """Return moments and quantiles of weighted particles."""
    mean = weights @ x
    return {
        "means": mean,
        "variances": weights @ (x - mean[None]) ** 2,
        "quantiles": jax.vmap(weighted_quantiles, (1, None, None), 1)(x, weights, levels),
    }


def checked_levels(quantiles: Sequence[float]) -> Float[Array, " q"]:
    """Return levels of quantiles as an array."""
    levels = np.atleast_1d(np.asarray(real_numbers("quantiles", quantiles)))
    if levels.ndim != 1 or not np.all((levels > 0) & (levels < 1)):
        raise ValueError(f"`quantiles` must be levels between 0 and 1; got {quantiles}.")
    return jnp.asarray(levels)
