"""Mixtures of laws."""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from .laws import AbstractLaw, real_array


class Mixture(AbstractLaw):
    """A mixture of laws.

    The first coordinate of the unit cube selects the law. Rescaled to the unit interval, it is also
    the first argument of that law, so quasi-random points are distributed evenly over all laws.

    **Arguments:**

    - `laws`: the components of the mixture.
    - `weights`: positive weights, normalised to sum to one; equal by default.

    >>> import diracflow as df
    >>> law = df.Mixture([df.Normal([1.0, 1.0], 0.1), df.Normal([-0.75, -0.75], 0.5)], [1, 3])
    >>> law.weights
    (0.25, 0.75)
    """

    laws: tuple[AbstractLaw, ...]
    weights: tuple[float, ...] = eqx.field(static=True)

    def __init__(self, laws: Sequence[AbstractLaw], weights: Sequence[float] | None = None):
        listed = isinstance(laws, tuple | list) and len(laws) > 0
        if not listed or not all(isinstance(law, AbstractLaw) for law in laws):
            raise ValueError("`Mixture` takes a list of one or more `diracflow` laws.")
        given = real_array("weights", np.ones(len(laws)) if weights is None else weights)
        if given.shape != (len(laws),) or not np.all((given > 0) & np.isfinite(given)):
            raise ValueError(
                f"A mixture of {len(laws)} laws needs {len(laws)} weights, positive and finite; "
                f"got {weights}."
            )
        self.weights = tuple(map(float, given / given.sum()))
        dims = {law.dim for law in laws if law.dim is not None}
        if len(dims) > 1:
            raise ValueError(f"Laws of a mixture must have the same dimension; got {sorted(dims)}.")
        self.laws = tuple(law.expand(min(dims)) if dims else law for law in laws)

    @property
    def dim(self) -> int | None:
        return self.laws[0].dim

    def expand(self, dim: int) -> "Mixture":
        return Mixture([law.expand(dim) for law in self.laws], self.weights)

    def from_uniform(self, u: Float[Array, " d"]) -> Float[Array, " d"]:
        ends = np.cumsum(self.weights)
        chosen = jnp.minimum(jnp.searchsorted(ends, u[0]), len(ends) - 1)
        # Laws that are not selected are evaluated as well, and quantiles of 0 and 1 are infinite.
        low = jnp.finfo(u.dtype).eps
        images = [
            law.from_uniform(jnp.asarray(u).at[0].set(jnp.clip((u[0] - end) / w + 1, low, 1 - low)))
            for law, end, w in zip(self.laws, ends, self.weights, strict=True)
        ]
        return jnp.stack(images)[chosen]

    def to_normal(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return `to_normal(x)` of the law for which it is smallest."""
        scores = jnp.stack([law.to_normal(x) for law in self.laws])
        return scores[jnp.argmin(jnp.sum(scores**2, axis=1))]

    def _log_prob(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        terms = jnp.stack([law._log_prob(x) for law in self.laws])
        return logsumexp(terms + np.log(self.weights))

    def describe(self) -> dict:
        laws = [law.describe() for law in self.laws]
        return {"law": "Mixture", "laws": laws, "weights": list(self.weights)}
