"""Catalogues over which properties are tested."""

import numpy as np

import diracflow as df
from diracflow.training.history import Record

_RNG = np.random.default_rng(3)

# Every model whose density is known, with the order in tau of its Euler source's log-density error.
EXACT_MODELS = {
    "brownian": (df.models.brownian(3), None),
    "ou-1d": (df.models.ornstein_uhlenbeck(1, rate=0.8, level=0.3, noise=0.6), 1.0),
    "ou-full": (
        df.models.ornstein_uhlenbeck(
            3,
            rate=np.eye(3) + 0.3 * _RNG.normal(size=(3, 3)),
            level=[0.2, -0.1, 0.4],
            noise=np.eye(3) + 0.2 * _RNG.normal(size=(3, 3)),
        ),
        1.0,
    ),
    "benes": (df.models.benes(), 1.0),
    "benes-3d": (df.models.benes(dim=3), 1.0),
    "sheared": (df.models.sheared(4), 0.5),
}

# A step of a training in which all is well.
RECORD = Record(
    time=0.25,
    length=0.1,
    error=1e-4,
    residual=1e-4,
    fresh_residual=2e-4,
    regularisation=1e-6,
    rank=120.3,
    condition=1e6,
    forcing=0.5,
    source_gap=0.3,
    bound=2e-3,
    rejected=2,
    seconds=10.0,
)
