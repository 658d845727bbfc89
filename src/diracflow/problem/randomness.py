"""NumPy's random numbers from JAX's keys, for draws that are not worth compiling."""

import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray


def generator(key: PRNGKeyArray) -> np.random.Generator:
    """A generator determined by `key`."""
    return np.random.default_rng(np.asarray(jr.key_data(key)))
