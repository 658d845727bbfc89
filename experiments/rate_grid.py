r"""The likelihood of CIR by a Fokker--Planck grid, solved anew for every proposal.

In the coordinate $y = 2\sqrt x/\sigma$ the noise is one and the drift
$a(y) = (2\kappa m/\sigma^2 - \tfrac12)/y - \kappa y/2$. Exponential fluxes make a chain on an even
grid that is right to second order in the spacing and reversible: its generator is similar to a
symmetric tridiagonal matrix, whose eigenvectors give transitions over any time, from all nodes at
once. This is the cheapest grid we know of for many starts.
"""

from collections.abc import Mapping

import numpy as np
from scipy.linalg import eigh_tridiagonal


def grid_log_likelihood(
    params: Mapping[str, float], gap: float, states: np.ndarray, nodes: int
) -> float:
    """Log-likelihood of evenly observed states, given the first; linear between nodes."""
    noise = float(params["noise"])
    y = 2 * np.sqrt(np.ravel(states)) / noise
    # Over a gap paths move a few units of y at most; below it the drift holds them off zero.
    h = (y.max() + 6 * np.sqrt(gap)) / nodes
    centres = h * (np.arange(nodes) + 0.5)
    density = _transitions(params, gap, centres, h)
    log_density = np.log(np.maximum(density, 1e-300))
    found = _between(log_density, y[:-1] / h - 0.5, y[1:] / h - 0.5)
    # dy / dx = 1 / (noise sqrt(x)) = 2 / (noise**2 y)
    return float(np.sum(found + np.log(2 / (noise**2 * y[1:]))))


def _transitions(
    params: Mapping[str, float], gap: float, centres: np.ndarray, h: float
) -> np.ndarray:
    """Densities in y, from each node to each."""
    edges = centres[:-1] + h / 2
    rate, level, noise = (float(params[name]) for name in ("rate", "level", "noise"))
    drift = (2 * rate * level / noise**2 - 0.5) / edges - rate * edges / 2
    step = 2 * drift * h
    up, down = _bernoulli(-step) / (2 * h**2), _bernoulli(step) / (2 * h**2)
    leaving = np.append(up, 0.0) + np.insert(down, 0, 0.0)
    values, vectors = eigh_tridiagonal(-leaving, np.sqrt(up * down))
    half = np.concatenate([[0.0], np.cumsum(step / 2)])  # half the log of the resting law
    kernel = (vectors * np.exp(values * gap)) @ vectors.T
    # Far from the diagonal the kernel is rounding, and the factor may be large: bound the latter.
    return kernel * np.exp(np.minimum(half[None, :] - half[:, None], 200.0)) / h


def _bernoulli(z: np.ndarray) -> np.ndarray:
    """z / (exp(z) - 1)."""
    small = np.abs(z) < 1e-8
    return np.where(small, 1 - z / 2, z / np.expm1(np.where(small, 1.0, z)))


def _between(table: np.ndarray, row: np.ndarray, column: np.ndarray) -> np.ndarray:
    """Values of a table between its entries, linearly along both axes."""
    i, j = (np.clip(np.floor(p).astype(int), 0, len(table) - 2) for p in (row, column))
    a, b = row - i, column - j
    return (1 - a) * ((1 - b) * table[i, j] + b * table[i, j + 1]) + a * (
        (1 - b) * table[i + 1, j] + b * table[i + 1, j + 1]
    )
