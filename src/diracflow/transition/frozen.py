"""The law of a transition density at fixed time and start, with the methods of SciPy's laws."""

from typing import TYPE_CHECKING

import equinox as eqx
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from ..sde.parameters import Params

if TYPE_CHECKING:
    from .transition_density import AbstractTransitionDensity


class Frozen(eqx.Module):
    """A transition density at fixed time, start, parameters and start time."""

    density: "AbstractTransitionDensity"
    t: Float[Array, "*batch"]
    x0: Float[Array, "*batch d"]
    params: Params
    start_time: Float[Array, "*batch"] | None

    def logpdf(self, x: Float[ArrayLike, "*batch d"]) -> Float[Array, "*batch"]:
        """Return the log-density at `x`, whose last axis is the state."""
        return self.density.log_prob(x, self.t, self.x0, self.params, start_time=self.start_time)

    def pdf(self, x: Float[ArrayLike, "*batch d"]) -> Float[Array, "*batch"]:
        """Return the density at `x`, whose last axis is the state."""
        return self.density.prob(x, self.t, self.x0, self.params, start_time=self.start_time)

    def rvs(
        self,
        size: int | tuple[int, ...] | None = None,
        random_state: int | np.random.Generator | None = None,
    ) -> Float[np.ndarray, "*size d"]:
        """Return independent draws as a NumPy array.

        **Arguments:**

        - `size`: leading shape of the draws; one draw by default.
        - `random_state`: a seed or a NumPy generator; by default draws differ from call to call.
        """
        try:
            generator = np.random.default_rng(random_state)
        except (TypeError, ValueError):
            raise ValueError(
                "`random_state` must be a whole number that is not negative, a NumPy generator or "
                f"None; got {random_state!r}."
            ) from None
        seed = generator.integers(2**32, dtype=np.uint32)
        shape = () if size is None else size
        draws = self.density.sample(
            jr.key(seed), self.t, self.x0, shape, self.params, start_time=self.start_time
        )
        return np.asarray(draws)
