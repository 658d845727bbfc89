"""Points of the unit cube: scrambled Sobol points and independent ones.

They are drawn with NumPy and SciPy, seeded by a JAX key, which requires no compilation.
"""

from collections.abc import Callable

import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray
from scipy.stats import qmc

UnitCube = Callable[[PRNGKeyArray, int, int], np.ndarray]


def generator(key: PRNGKeyArray) -> np.random.Generator:
    """Return the NumPy generator whose seed is `key`."""
    return np.random.default_rng(np.asarray(jr.key_data(key)))


def sobol(key: PRNGKeyArray, samples: int, dim: int) -> np.ndarray:
    """Return scrambled Sobol points. The error of a mean over them decays nearly as 1/n."""
    engine = qmc.Sobol(dim, rng=generator(key))
    return strictly_inside(engine.random_base2(int(np.ceil(np.log2(samples))))[:samples])


def montecarlo(key: PRNGKeyArray, samples: int, dim: int) -> np.ndarray:
    """Return independent uniform points."""
    return strictly_inside(generator(key).random((samples, dim)))


CUBES: dict[str, UnitCube] = {"sobol": sobol, "montecarlo": montecarlo}


def strictly_inside(u: np.ndarray) -> np.ndarray:
    """Return the points, moved off the faces of the cube, where normal quantiles are infinite."""
    return np.clip(u, 1e-12, 1 - 1e-12)
